package event

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// appendCode is the plain way to write one code.
func appendCode(dst []byte, code string, n uint64) []byte {
	return binary.AppendUvarint(appendString(dst, code), n)
}

// goldenRejected are the chunks of testdata/record-v1-rejected.bin: one with an event and rejections, one with rejections alone, one without.
func goldenRejected() [][]byte {
	events := goldenEvents()
	var a, b, c Builder
	a.Reset("demo", 1796081400123, false, true)
	a.MarkBot()
	a.Reject("too_late", 3)
	a.Add(&events[1])
	a.Reject("bad_user", 1)
	a.Reject("too_late", 200)
	b.Reset("shop", 1796081400200, false, false)
	b.Reject("malformed", 70_000)
	c.Reset("shop", 1796081400200, true, false)
	c.Add(&events[2])
	return [][]byte{a.Bytes(), b.Bytes(), c.Bytes()}
}

func TestGoldenRejected(t *testing.T) {
	want := []string{
		"0464656d6f0ef6e4d9ecc5680100" + "020006e99885e8afbb076f726465722d37" + "15" + "08746f6f5f6c617465cb01" + "086261645f7573657201",
		"0473686f700890e6d9ecc5680000" + "0d" + "096d616c666f726d6564f0a204",
	}
	for i, hexed := range want {
		if got := hex.EncodeToString(goldenRejected()[i]); got != hexed {
			t.Errorf("chunk %d:\n got %s\nwant %s", i, got, hexed)
		}
	}
	const file = "testdata/record-v1-rejected.bin"
	if os.Getenv("ROLLCALL_GOLDEN") != "" {
		if err := os.WriteFile(file, AppendRecord(nil, goldenHeader, goldenRejected()...), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var rec Record
	if err := rec.Decode(data); err != nil {
		t.Fatal(err)
	}
	chunks := []ChunkInfo{
		{First: 0, Count: 1, Notify: true, Bot: true, Project: "demo", Received: 1796081400123,
			Rejected: appendCode(appendCode(nil, "too_late", 203), "bad_user", 1)},
		{First: 1, Project: "shop", Received: 1796081400200, Rejected: appendCode(nil, "malformed", 70_000)},
		{First: 1, Count: 1, Project: "shop", Received: 1796081400200},
	}
	if !slices.EqualFunc(rec.Chunks, chunks, equalInfo) {
		t.Errorf("got %+v\nwant %+v", rec.Chunks, chunks)
	}
	events := goldenEvents()[1:]
	events[0].Bot = true
	if !slices.EqualFunc(rec.Events, events, func(a, b Event) bool { return equal(&a, &b) }) {
		t.Errorf("got %+v\nwant %+v", rec.Events, events)
	}
	if n := rec.Chunks[0].Rejected.Total(); n != 204 {
		t.Errorf("Total = %d, want 204", n)
	}
}

// TestRejectBeyondTheLimits: nothing that is refused gets lost, whatever its code.
func TestRejectBeyondTheLimits(t *testing.T) {
	var b Builder
	b.Reset("demo", 1, false, false)
	for i := range 100 {
		b.Reject(fmt.Sprintf("code_%d", i), 2)
	}
	b.Reject("Not a code", 5)
	b.Reject("", 5)
	b.Reject(strings.Repeat("x", MaxCode+1), 5)
	b.Reject("code_0", 1)
	b.Reject("code_0", 0)
	var rec Record
	if err := rec.Decode(AppendRecord(nil, Header{}, b.Bytes(), b.Bytes())); err != nil {
		t.Fatal(err)
	}
	got := maps.Collect(rec.Chunks[1].Rejected.All())
	if len(got) != MaxCodes || got["code_0"] != 3 || got["code_1"] != 2 || got[OtherCode] != 2*(100-MaxCodes+1)+15 {
		t.Errorf("%d codes, code_0 %d, other %d", len(got), got["code_0"], got[OtherCode])
	}
	if n := rec.Chunks[0].Rejected.Total(); n != 216 {
		t.Errorf("Total = %d, want 216", n)
	}
}

func TestCraftedRejections(t *testing.T) {
	f := func(name string, rejected []byte, good bool) {
		t.Helper()
		chunk := append([]byte{1, 'a', chunkRejected, 0, 0, 0}, appendString(nil, string(rejected))...)
		var rec Record
		err := rec.Decode(seal(0, appendString(nil, string(chunk))))
		if good && err != nil || !good && !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	many := func(n int) (b []byte) {
		for i := range n {
			b = appendCode(b, fmt.Sprint("c", i), 1)
		}
		return b
	}
	f("one", many(1), true)
	f("as many as may be", many(MaxCodes), true)
	f("too many", many(MaxCodes+1), false)
	f("none", nil, false)
	f("zero events", appendCode(nil, "a", 0), false)
	f("the most events", appendCode(nil, "a", MaxRejected), true)
	f("too many events", appendCode(nil, "a", MaxRejected+1), false)
	f("no code", appendCode(nil, "", 1), false)
	f("a long code", appendCode(nil, strings.Repeat("a", MaxCode+1), 1), false)
	f("a code with a colon", appendCode(nil, "a:b", 1), false)
	f("cut off", many(2)[:5], false)
	f("a count that never ends", append(appendString(nil, "a"), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), false)
	var rec Record
	if err := rec.Decode(seal(0, []byte{7, 1, 'a', chunkRejected, 0, 0, 0, 9})); !errors.Is(err, ErrDamaged) {
		t.Errorf("rejections longer than the chunk: %v", err)
	}
	if err := rec.Decode(seal(0, []byte{6, 1, 'a', 0x80, 0, 0, 0})); !errors.Is(err, ErrDamaged) {
		t.Errorf("an unknown flag of a chunk: %v", err)
	}
}
