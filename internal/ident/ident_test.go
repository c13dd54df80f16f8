package ident

import (
	"errors"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"github.com/rollcall/rollcall/internal/apperr"
)

func TestProject(t *testing.T) {
	for _, id := range []string{"demo", "a", "0", "-", "my-app-2", strings.Repeat("z", 32)} {
		if err := Project(id); err != nil {
			t.Errorf("Project(%q) = %v", id, err)
		}
	}
	for _, id := range []string{"", "A", "a}{b", "a:b", "a b", "é", "a\x00", "a/b", "a_b", strings.Repeat("z", 33)} {
		var e *apperr.Error
		if err := Project(id); !errors.As(err, &e) || e.Kind != apperr.Invalid || e.Code != "bad_project" {
			t.Errorf("Project(%q) = %v, want bad_project", id, err)
		}
	}
}

// The values are for ever: stored keys depend on them.
func TestShardGolden(t *testing.T) {
	f := func(want, n int, parts ...string) {
		t.Helper()
		if got := Shard(n, parts...); got != want {
			t.Errorf("Shard(%d, %q) = %d, want %d", n, parts, got, want)
		}
	}
	f(13, 16, "demo", "page_view")
	f(15, 16, "demo", "*")
	f(1, 16, "demo", "阅读")
	f(253, 256, "demo", "page_view")
	f(159, 256, "a", "bc")
	f(77, 256, "ab", "c")
	f(0, 1, "demo", "page_view")
}

func TestShardSpreads(t *testing.T) {
	var seen [16]int
	for range 16_000 {
		seen[Shard(16, "demo", string(rune('a'+rand.IntN(26)))+string(rune(0x4e00+rand.IntN(20000))))]++
	}
	for s, n := range seen {
		if n < 800 || n > 1200 {
			t.Errorf("shard %d has %d of 16,000, want about 1,000", s, n)
		}
	}
}

func TestTag(t *testing.T) {
	for shard, want := range map[int]string{0: "00", 10: "0a", 15: "0f", 16: "10", 255: "ff"} {
		if got := Tag(shard); got != want {
			t.Errorf("Tag(%d) = %q, want %q", shard, got, want)
		}
	}
}

func TestAppendEscaped(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		if got := string(AppendEscaped(nil, in)); got != want {
			t.Errorf("AppendEscaped(%q) = %q, want %q", in, got, want)
		}
	}
	f("", "")
	f("page_view", "page_view")
	f("$signin", "$signin")
	f("阅读", "阅读")
	f("*", "%2a")
	f("a}{b", "a%7d%7bb")
	f("home:uv", "home%3auv")
	f("/book/7 %", "%2fbook%2f7%20%25")
	f("\x00\x1f\x7f\n", "%00%1f%7f%0a")
	f("x\xff", "x\xff")
}

func FuzzAppendEscaped(f *testing.F) {
	for _, s := range []string{"", "*", "%2a", "a:b{c}", "阅读 /", "\xff\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := string(AppendEscaped([]byte("k:"), s))[2:]
		if i := strings.IndexAny(got, ":{}*/ \x7f"); i >= 0 {
			t.Errorf("AppendEscaped(%q) = %q has %q", s, got, got[i])
		}
		back, err := url.PathUnescape(got)
		if err != nil || back != s {
			t.Errorf("AppendEscaped(%q) = %q, which unescapes to %q, %v", s, got, back, err)
		}
	})
}
