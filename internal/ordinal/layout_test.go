package ordinal

import (
	"strings"
	"testing"

	"github.com/rollcall/rollcall/internal/ident"
)

// Stored dictionaries depend on these values for ever.
func TestLayoutGolden(t *testing.T) {
	for _, c := range []struct {
		ordinal       uint32
		level         int
		segment, size uint32
		at            uint32
	}{
		{0, 0, 0, 60, 0}, {59, 0, 0, 60, 59}, {60, 0, 1, 60, 0}, {1019, 0, 16, 60, 59}, {1020, 0, 17, 1020, 0}, {2039, 0, 17, 1020, 1019},
		{2040, 0, 18, 1020, 0}, {4095, 0, 20, 1020, 15}, {4096, 1, 20, 1020, 16}, {16_383, 1, 32, 1020, 63}, {16_384, 2, 32, 1020, 64},
		{65_535, 2, 80, 1020, 255}, {65_536, 3, 80, 1020, 256}, {262_144, 4, 273, 1020, 4}, {MaxUsers - 1, 10, 2105392, 1020, 127},
	} {
		seg, at := SegmentOf(c.ordinal)
		if level := levelOf(c.ordinal); level != c.level || seg != (Segment{c.segment, c.size}) || at != c.at {
			t.Errorf("ordinal %d: level %d, segment %v at %d; want %+v", c.ordinal, level, seg, at, c)
		}
	}
	if levels(0) != 0 || levels(1) != 1 || levels(4096) != 1 || levels(4097) != 2 {
		t.Error("levels")
	}
	for _, c := range []struct {
		level int
		want  uint32
	}{{0, 63}, {1, 255}, {2, 1023}, {10, 67_108_863}} {
		if got := bucketOf(c.level, 0xffffffff); got != c.want {
			t.Errorf("last bucket of level %d is %d, want %d", c.level, got, c.want)
		}
	}
	at := placeOf(16, "demo", "u42")
	if want := ident.Shard(16, "demo", "u42"); at.shard != want || at.tag != 3153113189 {
		t.Errorf("u42 is at %+v, want shard %d", at, want)
	}
	base := keyBase(at.shard, "demo")
	if got := keyOf(base, 1, at.tag, "u42"); got != "rc:{02}:ordinal:demo:u:1:101" {
		t.Error(got)
	}
}

func TestFieldsOfUsers(t *testing.T) {
	for _, c := range []struct{ user, field string }{
		{"u42", "u42"},
		{"阅读", "阅读"},
		{"01234567-89ab-cdef-0123-456789abcdef", "\xff\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef"},
		{"01234567-89AB-cdef-0123-456789abcdef", "01234567-89AB-cdef-0123-456789abcdef"}, // another user
		{strings.Repeat("x", 256), strings.Repeat("x", 256)},
	} {
		field := fieldOf(c.user)
		if field != c.field {
			t.Errorf("field of %q is %q", c.user, field)
		}
		if user, ok := userOf(field); !ok || user != c.user {
			t.Errorf("user of %q is %q", field, user)
		}
	}
	for _, bad := range []string{"", "\xff", "\xff123"} {
		if user, ok := userOf(bad); ok {
			t.Errorf("user of %q is %q", bad, user)
		}
	}
}
