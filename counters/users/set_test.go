package users

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/rollcall/rollcall/internal/projection"
)

func mustEncode(t testing.TB, b *roaring.Bitmap, r restated) string {
	t.Helper()
	s, err := encode(b, r)
	if err != nil {
		t.Fatal(err)
	}
	return string(s)
}

func mustDecode(t testing.TB, s string) decoded {
	t.Helper()
	d, err := decode(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestSetComesBack(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		b, r := roaring.New(), restated{rnd.Uint32(), rnd.Int64()}
		for range rnd.IntN(3000) {
			b.Add(rnd.Uint32N(1 << (4 + rnd.UintN(27))))
		}
		if rnd.IntN(3) == 0 {
			b.AddRange(1000, 1000+uint64(rnd.IntN(100_000)))
		}
		s := mustEncode(t, b, r)
		var tail []uint32
		for range rnd.IntN(50) {
			o := rnd.Uint32N(1 << 16)
			if rnd.IntN(3) == 0 {
				b.Remove(o)
				o |= gone
			} else {
				b.Add(o)
			}
			tail = append(tail, o)
		}
		d := mustDecode(t, s+string(encodeTail(nil, tail)))
		if !d.bits.Equals(b) || d.restated != r || d.base != len(s)-setHeader || d.tail != 4*len(tail) {
			t.Fatalf("%d members, %+v, base %d, tail %d came back; sent %d, %+v", d.bits.GetCardinality(), d.restated, d.base, d.tail, b.GetCardinality(), r)
		}
	}
	if d := mustDecode(t, mustEncode(t, roaring.New(), restated{})); !d.bits.IsEmpty() {
		t.Error("an empty set has members")
	}
}

func TestBM03_ForeignBytes(t *testing.T) {
	wide := roaring64.BitmapOf(5, 4294967301)
	foreign, err := wide.ToBytes()
	if err != nil {
		t.Fatal(err)
	}
	narrow, err := roaring.BitmapOf(5, 4294967295).ToBytes()
	if err != nil {
		t.Fatal(err)
	}
	framed := func(b []byte) string { return string(append(appendHeader(nil, uint64(len(b)), restated{}), b...)) }
	random := make([]byte, 40)
	rnd := rand.New(rand.NewPCG(3, 3))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range 2000 {
		for k := range random {
			random[k] = byte(rnd.Uint32())
		}
		for _, s := range []string{string(random), framed(random), framed(foreign), string(foreign), string(narrow), framed(narrow)} {
			if _, err := decode(s); err == nil {
				t.Fatalf("round %d: %x was taken", i, s)
			} else if !errors.Is(err, projection.ErrDamaged) {
				t.Fatalf("round %d: %v", i, err)
			}
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<30 {
		t.Errorf("%d MB allocated to refuse 12,000 short values", grown>>20)
	}
}

func TestBM04_CutShort(t *testing.T) {
	s := mustEncode(t, roaring.BitmapOf(3, 9, 70000), restated{})
	for n := range len(s) {
		if _, err := decode(s[:n]); !errors.Is(err, projection.ErrDamaged) {
			t.Errorf("the first %d of %d bytes: error %v, want damage", n, len(s), err)
		}
	}
}

func TestBM05_DecodedSetsOwnTheirBytes(t *testing.T) {
	b := []byte(mustEncode(t, roaring.BitmapOf(1, 2, 3), restated{}))
	d := mustDecode(t, string(b))
	clear(b)
	runtime.GC()
	if d.bits.GetCardinality() != 3 || !d.bits.Contains(1) {
		t.Errorf("%v after the bytes were overwritten", d.bits)
	}
}

func TestBM06_MixedContainers(t *testing.T) {
	a, b := roaring.New(), roaring.New()
	a.AddRange(130_001, 130_011)
	b.AddRange(0, 130_001)
	u := roaring.Or(a, b)
	and := a.AndCardinality(b)
	got := mustDecode(t, mustEncode(t, u, restated{})).bits
	if n := got.GetCardinality(); n != 130_011 || n != a.GetCardinality()+b.GetCardinality()-and {
		t.Errorf("%d members of the union, want 130,011", n)
	}
}

func TestBM07_OrderOfAdding(t *testing.T) {
	ids := []uint32{7, 33000, 44100, 57300, 83100}
	loop := roaring.New()
	for _, id := range ids {
		loop.Add(id)
	}
	reversed := slices.Clone(ids)
	slices.Reverse(reversed)
	unsorted := []uint32{57300, 7, 83100, 7, 33000, 44100}
	for _, list := range [][]uint32{ids, reversed, unsorted} {
		d := mustDecode(t, string(encodeTail(appendHeader(nil, 0, restated{}), list)))
		if !d.bits.Equals(loop) || d.bits.GetCardinality() != 5 {
			t.Errorf("%v by tail: %v", list, d.bits)
		}
	}
}

func TestBM12_AfterAnAppendOnlyRewrite(t *testing.T) {
	ctx := context.Background()
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	want := roaring.BitmapOf(3, 9, 70000)
	s := mustEncode(t, roaring.BitmapOf(3, 9), restated{})
	d.RDB.Set(ctx, "k", s, 0)
	d.RDB.Append(ctx, "k", string(encodeTail(nil, []uint32{70000})))
	waitFor(t, func() bool { return d.RDB.BgRewriteAOF(ctx).Err() == nil })
	waitFor(t, func() bool {
		info := d.RDB.Info(ctx, "persistence").Val()
		return !strings.Contains(info, "aof_rewrite_in_progress:1") && !strings.Contains(info, "aof_rewrite_scheduled:1")
	})
	d.server.Stop()
	d.server.Start()
	d.server.WaitReady()
	if got := mustDecode(t, d.RDB.Get(ctx, "k").Val()); !got.bits.Equals(want) || got.bits.GetCardinality() != 3 {
		t.Errorf("%v, want %v", got.bits, want)
	}
}

// The stored bytes are what a bitmap of any other roaring library can read, behind our header.
func TestPortableForm(t *testing.T) {
	s := mustEncode(t, roaring.BitmapOf(1, 2, 3), restated{})
	if cookie := binary.LittleEndian.Uint32([]byte(s[setHeader:])); cookie&0xffff != 12346 && cookie&0xffff != 12347 {
		t.Errorf("cookie %d", cookie)
	}
}

func FuzzDecode(f *testing.F) {
	b := roaring.BitmapOf(1, 2, 3, 70000)
	b.AddRange(100_000, 300_000)
	s, err := encode(b, restated{1, 2})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(s)
	f.Add(encodeTail(s, []uint32{5, 6 | gone}))
	f.Fuzz(func(t *testing.T, in []byte) {
		d, err := decode(string(in))
		if err != nil {
			return
		}
		if back := mustDecode(t, mustEncode(t, d.bits, d.restated)); !back.bits.Equals(d.bits) || back.restated != d.restated {
			t.Errorf("%x does not come back", in)
		}
	})
}

func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain")
		}
	}
}
