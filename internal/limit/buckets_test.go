package limit

import (
	"math/big"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return start.Add(d) }

// allowed counts the calls that pass, one after another.
func allowed(calls int, take func(i int) State) int {
	n := 0
	for i := range calls {
		if take(i).OK {
			n++
		}
	}
	return n
}

var tenAMinute = Rate{Count: 10, Per: time.Minute}

func TestRL02_Buckets(t *testing.T) {
	b := NewBuckets(10)
	if n := allowed(10, func(int) State { return b.Take("a", tenAMinute, 1, at(59*time.Second)) }); n != 10 {
		t.Errorf("at 59 s: %d allowed, want 10", n)
	}
	if n := allowed(10, func(int) State { return b.Take("a", tenAMinute, 1, at(61*time.Second)) }); n != 0 {
		t.Errorf("at 61 s: %d allowed, want 0", n)
	}
}

// A token bucket gives its burst and what has come since: 10 + 595/6. The windows give exactly 100.
func TestRL03_Buckets(t *testing.T) {
	b := NewBuckets(10)
	if n := allowed(120, func(i int) State { return b.Take("a", tenAMinute, 1, at(time.Duration(i)*5*time.Second)) }); n != 109 {
		t.Errorf("%d of 120 allowed, want 109", n)
	}
}

func TestBuckets_States(t *testing.T) {
	b := NewBuckets(10)
	r := Rate{Count: 10, Per: 10 * time.Second, Burst: 20}
	f := func(what string, got, want State) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	f("peek at an unknown name", b.Peek("a", r, start), State{OK: true, Limit: 20, Remaining: 20})
	f("more than the burst", b.Take("a", r, 21, start), State{Limit: 20, Remaining: 20})
	if b.Len() != 0 {
		t.Error("a name that took nothing is kept")
	}
	f("15 of 20", b.Take("a", r, 15, start), State{OK: true, Limit: 20, Remaining: 5, Reset: 15 * time.Second})
	f("6 of 5", b.Take("a", r, 6, start), State{Limit: 20, Remaining: 5, Reset: 15 * time.Second, RetryAfter: time.Second})
	f("peek", b.Peek("a", r, start), State{OK: true, Limit: 20, Remaining: 5, Reset: 15 * time.Second})
	f("5 of 5", b.Take("a", r, 5, start), State{OK: true, Limit: 20, Reset: 20 * time.Second})
	f("peek at nothing", b.Peek("a", r, at(300*time.Millisecond)), State{Limit: 20, Reset: 19700 * time.Millisecond, RetryAfter: 700 * time.Millisecond})
	f("more than the burst again", b.Take("a", r, 21, start.Add(400*time.Millisecond)), State{Limit: 20, Reset: 19600 * time.Millisecond})
	f("one after its wait", b.Take("a", r, 1, at(time.Second)), State{OK: true, Limit: 20, Reset: 20 * time.Second})
	f("nothing", b.Take("a", r, 0, at(time.Second)), State{OK: true, Limit: 20, Reset: 20 * time.Second})
	f("no limit", b.Take("a", Rate{}, 1000, start), State{OK: true})
	f("no limit, peek", b.Peek("a", Rate{}, start), State{OK: true})
}

// A clock that goes back gives nothing twice.
func TestBuckets_ClockGoesBack(t *testing.T) {
	b := NewBuckets(10)
	r := Rate{Count: 1, Per: time.Second, Burst: 5}
	b.Take("a", r, 5, at(10*time.Second))
	for range 10 {
		if b.Take("a", r, 1, at(0)).OK {
			t.Fatal("passes in the past")
		}
		if b.Peek("a", r, at(0)).OK {
			t.Fatal("peek passes in the past")
		}
		if b.Take("a", r, 1, at(10*time.Second)).OK {
			t.Fatal("passes after a look into the past")
		}
	}
	if !b.Take("a", r, 1, at(11*time.Second)).OK {
		t.Error("refused after a second")
	}
}

func TestBuckets_RateChanges(t *testing.T) {
	b := NewBuckets(10)
	b.Take("a", Rate{Count: 1, Per: time.Hour, Burst: 100}, 50, start)
	if s := b.Peek("a", Rate{Count: 1, Per: time.Hour, Burst: 10}, start); s.Remaining != 10 {
		t.Errorf("a smaller burst holds %d, want 10", s.Remaining)
	}
	if s := b.Peek("a", Rate{Count: 5, Per: time.Second, Burst: 200}, at(2*time.Second)); s.Remaining != 10 {
		t.Errorf("a larger burst holds %d, want 10: the rate before gave nothing in 2 s", s.Remaining)
	}
	if s := b.Peek("a", Rate{Count: 5, Per: time.Second, Burst: 200}, at(4*time.Second)); s.Remaining != 20 {
		t.Errorf("two seconds on it holds %d, want 20", s.Remaining)
	}
}

// model is the token bucket in exact arithmetic.
type model struct {
	tokens *big.Rat
	last   time.Time
}

func (m *model) take(r Rate, n int, now time.Time) bool {
	if now.After(m.last) {
		gained := big.NewRat(int64(now.Sub(m.last))*int64(r.Count), int64(r.Per))
		m.tokens.Add(m.tokens, gained)
		m.last = now
	}
	if full := big.NewRat(int64(r.burst()), 1); m.tokens.Cmp(full) > 0 {
		m.tokens = full
	}
	want := big.NewRat(int64(n), 1)
	if m.tokens.Cmp(want) < 0 {
		return false
	}
	m.tokens.Sub(m.tokens, want)
	return true
}

// Random calls agree with the model, and what State says about waiting is true to the millisecond.
func TestBuckets_Model(t *testing.T) {
	for range 30 {
		seed := rand.Uint64()
		rnd := rand.New(rand.NewPCG(seed, 1))
		// Rates that give a token in whole milliseconds, so that float arithmetic can't decide differently at an edge.
		r := Rate{Count: 1, Per: time.Duration(1+rnd.IntN(5000)) * time.Millisecond, Burst: 1 + rnd.IntN(20)}
		b, m, now := NewBuckets(4), model{big.NewRat(int64(r.Burst), 1), start}, start
		for i := range 500 {
			n := 1 + rnd.IntN(r.Burst+1)
			got, want := b.Take("a", r, n, now), m.take(r, n, now)
			if got.OK != want {
				t.Fatalf("seed %d, %v, call %d for %d: %+v, want %v", seed, r, i, n, got, want)
			}
			if got.RetryAfter > 0 {
				if b.Take("a", r, n, now.Add(got.RetryAfter-time.Millisecond)).OK {
					t.Fatalf("seed %d, %v, call %d for %d passes sooner than %v", seed, r, i, n, got.RetryAfter)
				}
				now = now.Add(got.RetryAfter)
				if !b.Take("a", r, n, now).OK || !m.take(r, n, now) {
					t.Fatalf("seed %d, %v, call %d for %d does not pass after %v", seed, r, i, n, got.RetryAfter)
				}
			}
			now = now.Add(time.Duration(rnd.Int64N(3*int64(r.Per)/int64(time.Millisecond)+1)) * time.Millisecond)
		}
	}
}

func TestBuckets_Bounded(t *testing.T) {
	const size = 5000
	b := NewBuckets(size)
	before := heap()
	for i := range 20 * size {
		b.Take(strings.Repeat("x", 1000)+strconv.Itoa(i), tenAMinute, 1, start)
	}
	// Shards fill unevenly, but none beyond its part.
	if n := b.Len(); n > size || n < size*9/10 {
		t.Errorf("%d names are kept, want about %d and no more", n, size)
	}
	if each := (heap() - before) / size; each > 500 {
		t.Errorf("a name takes %d bytes, want less than 500", each)
	} else {
		t.Logf("a name takes %d bytes", each)
	}
	runtime.KeepAlive(b)
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Names that are used stay, also those that are only looked at: a client that is refused must not come back by the others' doing.
func TestBuckets_UsedNamesStay(t *testing.T) {
	b := NewBuckets(100)
	b.Take("a", tenAMinute, 10, start)
	for i := range 10_000 {
		b.Take(strconv.Itoa(i), tenAMinute, 1, start)
		if b.Peek("a", tenAMinute, start).OK {
			t.Fatalf("after %d other names a is full again", i)
		}
	}
	if NewBuckets(0).Take("a", tenAMinute, 11, start).OK {
		t.Error("Buckets of no size let everything pass")
	}
}

func TestBuckets_Concurrent(t *testing.T) {
	b := NewBuckets(100_000)
	r := Rate{Count: 1, Per: time.Hour, Burst: 1000}
	var passed [4]atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 4000 {
				if name := i % 4; b.Take(strconv.Itoa(name), r, 2, start).OK {
					passed[name].Add(2)
				}
				b.Peek("x"+strconv.Itoa(i), r, start)
				b.Take("y"+strconv.Itoa(i), r, 1, start)
			}
		})
	}
	wg.Wait()
	for name := range passed {
		if n := passed[name].Load(); n != 1000 {
			t.Errorf("name %d got %d, want 1000", name, n)
		}
	}
}

func BenchmarkBucketsTake(b *testing.B) {
	names := make([]string, 4096)
	for i := range names {
		names[i] = "2001:db8:" + strconv.FormatInt(int64(i), 16) + "::/64"
	}
	buckets := NewBuckets(100_000)
	r := Rate{Count: 1000, Per: time.Second, Burst: 5000}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		now := start
		for i := rand.IntN(4096); pb.Next(); i++ {
			now = now.Add(time.Microsecond)
			buckets.Take(names[i%4096], r, 1, now)
		}
	})
}
