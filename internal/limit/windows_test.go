package limit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/ident"
	"github.com/rollcall/rollcall/internal/realtest"
)

// rig is Windows on a real server, with a clock that the test moves. Windows in tests last at least a minute, since TTLs run by the
// server's clock.
type rig struct {
	*Windows
	t     testing.TB
	clock *clock.Manual
}

func newRig(t testing.TB, c redis.UniversalClient) *rig {
	m := clock.NewManual(start)
	w := NewWindows(WindowOptions{Redis: c, Shards: 16, Clock: m})
	w.patience = 20 * time.Second // a machine that stalls is no fault here; see pause
	return &rig{w, t, m}
}

// take asks for one call at the given instant.
func (r *rig) take(d time.Duration, c Call) State {
	r.t.Helper()
	r.clock.Set(at(d))
	s, err := r.Take(context.Background(), []Call{c})
	if err != nil {
		r.t.Fatal(err)
	}
	return s[0]
}

func minute(name string, limit int) Call {
	return Call{Project: "demo", Kind: "freq", Name: []string{name}, Limit: limit, Per: time.Minute}
}

func TestRL02_Windows(t *testing.T) {
	r := newRig(t, realtest.Redis(t).Client())
	if n := allowed(10, func(int) State { return r.take(59*time.Second, minute("a", 10)) }); n != 10 {
		t.Errorf("at 59 s: %d allowed, want 10", n)
	}
	if n := allowed(10, func(int) State { return r.take(61*time.Second, minute("a", 10)) }); n != 0 {
		t.Errorf("at 61 s: %d allowed, want 0", n)
	}
}

func TestRL03_Windows(t *testing.T) {
	r := newRig(t, realtest.Redis(t).Client())
	if n := allowed(120, func(i int) State { return r.take(time.Duration(i)*5*time.Second, minute("a", 10)) }); n != 100 {
		t.Errorf("%d of 120 allowed, want 100", n)
	}
}

func TestWindows_States(t *testing.T) {
	r := newRig(t, realtest.Redis(t).Client())
	f := func(d time.Duration, c Call, want State) {
		t.Helper()
		if got := r.take(d, c); got != want {
			t.Errorf("at %v: %+v, want %+v", d, got, want)
		}
	}
	c := minute("a", 3)
	f(0, c, State{OK: true, Limit: 3, Remaining: 2, Reset: time.Minute})
	f(20*time.Second, c, State{OK: true, Limit: 3, Remaining: 1, Reset: time.Minute})
	f(30*time.Second, c, State{OK: true, Limit: 3, Reset: time.Minute})
	f(45*time.Second, c, State{Limit: 3, Reset: 45 * time.Second, RetryAfter: 15 * time.Second})
	f(time.Minute-time.Millisecond, c, State{Limit: 3, Reset: 30*time.Second + time.Millisecond, RetryAfter: time.Millisecond})
	f(time.Minute, c, State{OK: true, Limit: 3, Reset: time.Minute})
	c.Limit = 1 // lowered: two more must leave first
	f(61*time.Second, c, State{Limit: 1, Reset: 59 * time.Second, RetryAfter: 59 * time.Second})
	c.Limit = 2
	f(61*time.Second, c, State{Limit: 2, Reset: 59 * time.Second, RetryAfter: 29 * time.Second})
	f(90*time.Second, c, State{OK: true, Limit: 2, Reset: time.Minute})
	c.Per = 2 * time.Minute // another window, with nothing in it
	f(90*time.Second, c, State{OK: true, Limit: 2, Remaining: 1, Reset: 2 * time.Minute})
	f(10*time.Minute, minute("a", 3), State{OK: true, Limit: 3, Remaining: 2, Reset: time.Minute})
	// A clock that is behind is taken to be at the newest call, and never waits longer than the window.
	f(9*time.Minute, minute("a", 3), State{OK: true, Limit: 3, Remaining: 1, Reset: time.Minute})
	f(9*time.Minute, minute("a", 2), State{Limit: 2, Reset: time.Minute, RetryAfter: time.Minute})
}

func TestWindows_SameID(t *testing.T) {
	r := newRig(t, realtest.Redis(t).Client())
	call := func(d time.Duration, id string) bool {
		t.Helper()
		c := minute("a", 2)
		c.ID = id
		return r.take(d, c).OK
	}
	f := func(d time.Duration, id string, want bool) {
		t.Helper()
		if got := call(d, id); got != want {
			t.Errorf("at %v, id %q: %v, want %v", d, id, got, want)
		}
	}
	f(0, "x", true)
	f(1*time.Second, "x", true) // consumes nothing
	f(2*time.Second, "y", true)
	f(3*time.Second, "z", false)
	f(4*time.Second, "z", false) // was refused, so it has not passed
	f(5*time.Second, "x", true)
	f(6*time.Second, "y", true)
	f(7*time.Second, "", false)
	f(8*time.Second, "0", false) // is an id, and none that is there
	f(59*time.Second, "x", true)
	f(60*time.Second, "x", true) // its call has left the window: this is a new one
	f(61*time.Second, "w", false)
	f(62*time.Second, "w", true)
	f(63*time.Second, "y", false)

	other := minute("b", 1)
	other.ID = "x"
	r.take(64*time.Second, other)
	other.ID = "w"
	if r.take(64*time.Second, other).OK {
		t.Error("an id that passed under one name passes under another")
	}
	same := []Call{minute("c", 1), minute("c", 1), minute("c", 1)}
	same[0].ID, same[1].ID, same[2].ID = "1", "1", "2"
	states, err := r.Take(context.Background(), same)
	if err != nil || !states[0].OK || !states[1].OK || states[2].OK {
		t.Errorf("three calls at once: %+v, %v; want the first two to pass", states, err)
	}
}

// exact is the window as a list in memory.
type exact struct {
	calls []passed
}

type passed struct {
	at time.Time
	id string
}

func (x *exact) take(now time.Time, c Call) bool {
	if n := len(x.calls); n > 0 && x.calls[n-1].at.After(now) {
		now = x.calls[n-1].at
	}
	x.calls = slices.DeleteFunc(x.calls, func(p passed) bool { return !p.at.After(now.Add(-c.Per)) })
	if c.ID != "" && slices.ContainsFunc(x.calls, func(p passed) bool { return p.id == c.ID }) {
		return true
	}
	if len(x.calls) >= c.Limit {
		return false
	}
	x.calls = append(x.calls, passed{now, c.ID})
	return true
}

// Random calls, with clocks that differ between nodes, agree with the model; and every key has a TTL at every step.
func TestWindows_Model(t *testing.T) {
	c := realtest.Redis(t).Client()
	r := newRig(t, c)
	ctx := context.Background()
	for round := range 12 {
		seed := rand.Uint64()
		rnd := rand.New(rand.NewPCG(seed, 1))
		call := Call{Project: "demo", Kind: "freq", Name: []string{strconv.Itoa(round)}, Limit: 1 + rnd.IntN(150), Per: time.Duration(60+rnd.IntN(600)) * time.Second}
		var x exact
		now, step := start, int64(4*call.Per)/int64(call.Limit)
		for i := range 60 {
			var calls []Call
			for range 1 + rnd.IntN(20) {
				if call.ID = ""; rnd.IntN(2) == 0 {
					call.ID = strconv.Itoa(rnd.IntN(400))
				}
				calls = append(calls, call)
			}
			now = now.Add(time.Duration(rnd.Int64N(step)).Round(time.Millisecond))
			r.clock.Set(now.Add(time.Duration(rnd.IntN(3000)-1500) * time.Millisecond))
			states, err := r.Take(ctx, calls)
			if err != nil {
				t.Fatal(err)
			}
			for j, s := range states {
				if want := x.take(r.clock.Now(), calls[j]); s.OK != want || s.Remaining != max(0, call.Limit-len(x.calls)) {
					t.Fatalf("seed %d, step %d, call %d: %+v, want %v with %d in the window of %d", seed, i, j, s, want, len(x.calls), call.Limit)
				}
			}
			key := windowKey(16, &call)
			if ttl := c.PTTL(ctx, key).Val(); ttl <= 0 || ttl > call.Per {
				t.Fatalf("%s has a TTL of %v, want at most %v", key, ttl, call.Per)
			}
			if n := c.LLen(ctx, key).Val(); n != int64(2*len(x.calls)) {
				t.Fatalf("%s holds %d elements for %d calls", key, n, len(x.calls))
			}
			if rnd.IntN(10) == 0 {
				call.Limit = 1 + rnd.IntN(150)
			}
		}
	}
}

// Thousands of calls take 12 bytes each, 20 with ids, and leave the window a part at a time or all at once.
func TestWindows_LargeAndCompact(t *testing.T) {
	c := realtest.Redis(t).Client()
	r := newRig(t, c)
	ctx := context.Background()
	f := func(call Call, id string, most int64) {
		t.Helper()
		limit, key := call.Limit, windowKey(16, &call)
		for i := 0; i < limit; i += 100 { // a hundred calls every 100 ms
			r.clock.Set(at(time.Duration(i) * time.Millisecond))
			calls := make([]Call, 100)
			for j := range calls {
				if calls[j] = call; id != "" {
					calls[j].ID = id + strconv.Itoa(i+j)
				}
			}
			states, err := r.Take(ctx, calls)
			if err != nil || states[99].Remaining != limit-i-100 {
				t.Fatalf("after %d: %+v, %v", i, states, err)
			}
		}
		size := c.MemoryUsage(ctx, key, 0).Val()
		t.Logf("%s: %.1f bytes a call", key, float64(size)/float64(limit))
		if size == 0 || size > most*int64(limit) {
			t.Errorf("%s: %d bytes, want at most %d a call", key, size, most)
		}
		if r.take(0, call).OK {
			t.Error("one more than the limit passes")
		}
		if id != "" {
			call.ID = id + strconv.Itoa(limit-1)
		}
		used := limit / 2
		if id == "" {
			used++ // it is no repetition
		}
		if s := r.take(time.Hour+time.Duration(limit/2-50)*time.Millisecond, call); !s.OK || s.Remaining != limit-used {
			t.Errorf("%+v with one half gone, want %d left", s, limit-used)
		}
		if n := c.LLen(ctx, key).Val(); n != int64(2*used) {
			t.Errorf("%d elements are left, want %d", n, 2*used)
		}
		if s := r.take(3*time.Hour, call); !s.OK || s.Remaining != limit-1 {
			t.Errorf("%+v with all gone, want one call in the window", s)
		}
		if n := c.LLen(ctx, key).Val(); n != 2 {
			t.Errorf("%d elements are left, want 2", n)
		}
	}
	f(Call{Project: "demo", Kind: "sync", Name: []string{"plain"}, Limit: MaxWindow, Per: time.Hour}, "", 13)
	f(Call{Project: "demo", Kind: "sync", Name: []string{"ids"}, Limit: MaxWindowWithIDs, Per: time.Hour}, "id", 22)
}

func TestValidateWindow(t *testing.T) {
	f := func(limit int, per time.Duration, withIDs bool, want string) {
		t.Helper()
		err := ValidateWindow(limit, per, withIDs)
		var e *apperr.Error
		if want == "" && err == nil {
			return
		}
		if !errors.As(err, &e) || e.Kind != apperr.Invalid || e.Code != "bad_window" || want == "" || !strings.Contains(e.Detail, want) {
			t.Errorf("%d in %v: %v, want %q", limit, per, err, want)
		}
	}
	f(1, time.Second, false, "")
	f(MaxWindow, 31*24*time.Hour, false, "")
	f(MaxWindowWithIDs, time.Hour, true, "")
	f(0, time.Minute, false, "1 to 10000")
	f(MaxWindow+1, time.Minute, false, "1 to 10000")
	f(MaxWindowWithIDs+1, time.Minute, true, "1 to 1000 ")
	f(1, time.Second-1, false, "1s to 31d")
	f(1, 32*24*time.Hour, true, "1s to 31d")
	f(1, 0, false, "1s to 31d")

	r := newRig(t, realtest.Redis(t).Client())
	for _, c := range []Call{{Project: "demo", Limit: 0, Per: time.Minute}, {Project: "a:b", Limit: 1, Per: time.Minute}, {Limit: 1, Per: time.Minute}, {Project: "demo", Limit: MaxWindow, Per: time.Minute, ID: "x"}} {
		if s, err := r.Take(context.Background(), []Call{minute("a", 1), c}); err == nil || apperr.As(err).Kind != apperr.Invalid || s != nil {
			t.Errorf("%+v: %v, %v; want it refused as invalid", c, s, err)
		}
	}
	if s, err := r.Take(context.Background(), nil); s != nil || err != nil {
		t.Errorf("no calls: %v, %v", s, err)
	}
	if s := r.take(0, minute("a", 1)); !s.OK {
		t.Error("an invalid call let another one consume")
	}
}

func TestWindowKey(t *testing.T) {
	f := func(want string, c Call) {
		t.Helper()
		if got := windowKey(16, &c); got != want {
			t.Errorf("%+v: %s, want %s", c, got, want)
		}
	}
	f(Keys[0].Example, Call{Project: "demo", Kind: "freq", Name: []string{"$signin", "u42"}, Per: 24 * time.Hour})
	seen := map[string][]string{}
	for _, name := range [][]string{nil, {""}, {"", ""}, {"a"}, {"a", "b"}, {"a:b"}, {"a%3ab"}, {"a", ""}, {"a}", "{b"}, {"\x00"}, {"a\x00b"}, {"阅读 *"}} {
		key := windowKey(16, &Call{Project: "demo", Kind: "freq", Name: name, Per: time.Minute})
		if before, ok := seen[key]; ok {
			t.Errorf("%q and %q both make %s", before, name, key)
		}
		seen[key] = name
		if strings.Count(key, "{") != 1 || strings.ContainsAny(key, " \x00*") {
			t.Errorf("%q makes %q", name, key)
		}
	}
	if tag := "{" + ident.Tag(ident.Shard(16, "demo:freq:a:m")) + "}"; !strings.Contains(windowKey(16, &Call{Project: "demo", Kind: "freq", Name: []string{"a"}, Per: time.Minute}), tag) {
		t.Error("a key lies in another shard than its thing")
	}
}

func BenchmarkWindowsTake(b *testing.B) {
	c := realtest.Redis(b).Client()
	for _, v := range []struct {
		limit, calls int
		id           bool
	}{{10, 1, false}, {10, 1, true}, {10, 100, true}, {10, 5000, true}, {MaxWindow, 1, false}, {MaxWindowWithIDs, 1, true}} {
		b.Run(fmt.Sprintf("limit=%d/calls=%d/id=%v", v.limit, v.calls, v.id), func(b *testing.B) {
			r := newRig(b, c)
			calls := make([]Call, v.calls)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				r.clock.Add(time.Second)
				for i := range calls {
					calls[i] = Call{Project: "demo", Kind: "freq", Name: []string{strconv.Itoa(i % 1000)}, Limit: v.limit, Per: time.Duration(v.limit) * 2 * time.Second}
					if v.id {
						calls[i].ID = strconv.Itoa(n)
					}
					n++
				}
				if _, err := r.Take(context.Background(), calls); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*v.calls), "µs/call")
		})
	}
}
