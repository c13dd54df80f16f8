package counters

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/projection"
)

// Batches are cut at random, commits reach all shards, some or none, and after those that fail everything is read again: PV and registers must be
// the model's all the same.
func TestModel(t *testing.T) {
	for seed, o := range []struct{ mirrors, cells, names int }{{4096, maxCells, 100}, {4096, maxCells, 3}, {3, maxCells, 100}, {0, maxCells, 4}, {40, 60, 2}} {
		t.Run(fmt.Sprintf("seed=%d/mirrors=%d/cells=%d", seed, o.mirrors, o.cells), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(uint64(seed), 7))
			d := newDriver(t, at(t, "2026-11-01T20:00:00Z")) // the day on which New York's clock goes back
			d.p.maxCells, d.p.o.Names = o.cells, o.names
			d.p.mirrors.limit = o.mirrors
			d.p.o.MirrorBytes = int64(o.mirrors) * hllRegisters
			d.randomRecords(rnd, 300)
			last, next, faults := uint64(len(d.journal)), uint64(1), 0
			for next <= last {
				to := min(last, next+uint64(rnd.IntN(12)))
				if rnd.IntN(6) == 0 { // the projector or Redis dies in the middle of a commit
					chance := rnd.IntN(11)
					d.commit(next, to, func(int) bool { return rnd.IntN(10) < chance })
					d.p.Reset()
					next = slices.Min(d.applied[:]) + 1
					faults++
					continue
				}
				d.commit(next, to, all)
				if rnd.IntN(10) == 0 { // lagging shards are moved up now and then
					for s := range d.applied {
						d.applied[s] = max(d.applied[s], to)
					}
				}
				next = to + 1
				if n := len(d.p.mirrors.held); n > o.mirrors {
					t.Fatalf("%d mirrors held, the limit is %d", n, o.mirrors)
				}
			}
			if faults < 3 {
				t.Fatalf("%d faults: the test wants some", faults)
			}
			d.check()
		})
	}
}

func TestMirrorSendsOnlyChanges(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	for range 20 {
		var events []event.Event
		for i := range 1000 {
			events = append(events, view(fmt.Sprintf("u%d", i), at(t, "2026-11-30T10:00:00Z")))
		}
		d.write(events...)
		d.run()
	}
	// 20,000 events in 4 sketches. 1,000 users change fewer than 1,000 registers.
	if d.users > 4000 {
		t.Errorf("%d users sent, want at most 4,000", d.users)
	}
	d.check()
	d.p.Reset() // a new epoch loads the mirrors and sends nobody
	sent := d.users
	d.write(d.journal[0].Events...)
	d.run()
	if d.users != sent {
		t.Errorf("%d users sent again after a reset, want 0", d.users-sent)
	}
	d.check()
}

func TestDamagedSketchStopsTheProjection(t *testing.T) {
	ctx := context.Background()
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	var events []event.Event
	for i := range 100 {
		events = append(events, view(fmt.Sprintf("u%d", i), at(t, "2026-11-30T10:00:00Z")))
	}
	d.write(events...)
	key := uvDayKey(keyBase(shardOf(testShards, "demo", "page_view"), "demo"), "page_view", "2026-11-30")
	d.rdb.Set(ctx, key, "HYLL\x01 and then nonsense", 0)
	tx := projection.NewTx(testShards, nil, func(context.Context) (redis.UniversalClient, error) { return d.rdb, nil })
	err := d.p.Project(ctx, &projection.Batch{Records: d.journal, Events: 100}, tx)
	if err == nil || !strings.Contains(err.Error(), key) {
		t.Errorf("error %v, want one that names %s", err, key)
	}
}

func TestID07_AbsentUserIsNobody(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	var events []event.Event
	for range 15 { // null and "" reach us as absent
		events = append(events, view("", at(t, "2026-11-30T10:00:00Z")))
	}
	for range 3 {
		events = append(events, view("u1", at(t, "2026-11-30T10:00:00Z")))
	}
	d.write(events...)
	d.run()
	d.want(CountsRequest{From: "2026-11-30", To: "2026-12-01"}, "2026-11-30 18/1, total 18/1")
	d.check()
}

func TestDD06_ProjectsAreApart(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	e := view("u1", at(t, "2026-11-30T10:00:00Z"))
	e.ID = "m1"
	a, b := e, e
	a.Project, b.Project = "a", "b"
	d.write(a)
	d.write(b)
	d.run()
	for _, p := range []string{"a", "b"} {
		d.want(CountsRequest{Project: p, From: "2026-11-30", To: "2026-12-01"}, "2026-11-30 1/1, total 1/1")
	}
	d.check()
}

func TestHL06_NamesBuildTheirOwnKeys(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	names := []string{"a}{b", "a:b", "a%3ab", "*", "%2a", "{}", "}", ":", "uv:x", "x:2026-11-30", "total:x", "阅读", "a b", "/"}
	var events []event.Event
	for i, name := range names {
		for range i + 1 {
			e := view(fmt.Sprintf("u%d", i), at(t, "2026-11-30T10:00:00Z"))
			e.Name = name
			events = append(events, e)
		}
	}
	d.write(events...)
	d.run()
	d.check()
	for i, name := range names {
		if name == Any {
			continue // in a question it stands for any event
		}
		d.want(CountsRequest{Event: name, From: "2026-11-30", To: "2026-12-01"}, fmt.Sprintf("2026-11-30 %d/1, total %[1]d/1", i+1))
	}
	d.want(CountsRequest{Event: Any, From: "2026-11-30", To: "2026-12-01"}, "2026-11-30 105/14, total 105/14")
	for _, key := range d.keys() {
		if open, close := strings.Count(key, "{"), strings.Count(key, "}"); open != 1 || close != 1 || !strings.HasPrefix(key, "rc:{") {
			t.Errorf("%s has more than the tag in braces", key)
		}
	}
}

func TestRD07_ExpiryIsFixed(t *testing.T) {
	ctx := context.Background()
	d := newDriver(t, at(t, "2026-08-01T12:00:00Z"))
	for range 100 {
		d.write(view("u1", d.clock.Now()))
		d.run()
		d.clock.Add(day)
	}
	base := keyBase(shardOf(testShards, "demo", "page_view"), "demo")
	total := totalKey(base, "page_view")
	if n, ttl := d.rdb.Get(ctx, total).Val(), d.rdb.TTL(ctx, total).Val(); n != "100" || ttl != -1 {
		t.Errorf("lifetime %s with TTL %v, want 100 without", n, ttl)
	}
	d.check() // among others that every expiry is counted from the period's end
	// A late event, received 7 days on, moves the end; one on the same day does not.
	key := pvKey(base, "page_view", "2026-08-01")
	before := d.expiry(key)
	d.write(view("u2", at(t, "2026-08-01T12:00:00Z")))
	d.run()
	d.check()
	if after := d.expiry(key); after <= before {
		t.Errorf("expiry %d after a late event, %d before", after, before)
	}
}

// A user whom the mirrors know sends nothing to the sketches, but the keys live on for him.
func TestExpiryGrowsWithoutChange(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	d.write(users(1, 200, at(t, "2026-11-30T10:00:00Z"))...)
	d.run()
	sent := d.users
	for range 3 {
		d.clock.Add(day)
		d.write(view("u7", at(t, "2026-11-30T10:00:00Z")))
		d.run()
		d.check()
	}
	if d.users != sent {
		t.Errorf("%d users sent, want none", d.users-sent)
	}
}

func TestRD09_RewritingKeepsTheExpiry(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	for i := range 300 { // hashes, sparse and dense sketches, with and without mirrors, in several epochs
		var events []event.Event
		for k := range 100 {
			events = append(events, view(fmt.Sprintf("u%d-%d", i, k), at(t, "2026-11-30T10:00:00Z")))
		}
		d.write(events...)
		if i%20 == 0 {
			d.p.Reset()
		}
		d.run()
	}
	d.check()
}

// A key's time is up while the projector has its mirror: the next event must not be hidden by what the mirror remembers, nor make a key without TTL.
func TestExpiryEndsTheMirror(t *testing.T) {
	ctx := context.Background()
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	hour := at(t, "2026-11-30T10:00:00Z")
	var events []event.Event
	for i := range 200 {
		events = append(events, view(fmt.Sprintf("u%d", i), hour))
	}
	d.write(events...)
	d.run()
	key := uvHourKey(keyBase(shardOf(testShards, "demo", "page_view"), "demo"), "page_view", "2026-11-30T10:00+00:00")
	d.rdb.Del(ctx, key)
	d.clock.Add(46 * day)
	d.write(view("u7", hour))
	d.run()
	if n := d.rdb.PFCount(ctx, key).Val(); n != 1 {
		t.Errorf("%d users in the new sketch, want 1", n)
	}
	if got, want := d.expiry(key), (ceilDay(d.clock.Now().UnixMilli())+45*dayMs)/1000; got != want {
		t.Errorf("expiry %d, want %d", got, want)
	}
}

// A journal from long ago is replayed: what would have gone by now gets a day, and never a key without TTL.
func TestReplayOfTheDead(t *testing.T) {
	ctx := context.Background()
	d := newDriver(t, time.Now().Add(-1000*day))
	d.shift = 0
	for range 3 {
		d.write(view("u1", d.clock.Now()))
	}
	d.clock.Set(time.Now())
	for seq := range uint64(3) {
		d.commit(seq+1, seq+1, all)
	}
	n := 0
	for _, key := range d.keys() {
		ttl := d.rdb.TTL(ctx, key).Val()
		if strings.Contains(key, ":total:") {
			continue
		}
		n++
		if ttl < 23*time.Hour || ttl > 49*time.Hour {
			t.Errorf("%s has TTL %v, want one to two days", key, ttl)
		}
	}
	if n != 6 {
		t.Errorf("%d period keys, want 6", n)
	}
}

// A public key that sends random names makes no more keys than the names that a project may have.
func TestRD08_RandomNames(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	d.p.o.Names = 50
	d.write(view("u1", at(t, "2026-11-30T10:00:00Z")))
	for i := range 20 {
		var events []event.Event
		for k := range 1000 {
			e := view(fmt.Sprint("u", k%5), at(t, "2026-11-30T10:00:00Z"))
			e.Name = fmt.Sprint("x", i*1000+k)
			events = append(events, e)
		}
		d.write(events...)
		d.run()
		if i == 10 {
			d.p.Reset()
		}
	}
	if n := len(d.keys()); n != (50+2)*4 {
		t.Errorf("%d keys, want those of 50 names, of any and of the others", n)
	}
	day := CountsRequest{From: "2026-11-30", To: "2026-12-01"}
	d.want(day, "2026-11-30 1/1, total 1/1")
	day.Event = Other
	d.want(day, "2026-11-30 19951/5, total 19951/5")
	day.Event = Any
	d.want(day, "2026-11-30 20001/5, total 20001/5")
	d.check()
}

func TestRD12_HotMetric(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	rnd := rand.New(rand.NewPCG(3, 3))
	var events []event.Event
	for i := range 100_000 {
		events = append(events, view(fmt.Sprintf("user-%d", i%20_000), at(t, "2026-11-30T10:00:00Z").Add(time.Duration(i%7)*time.Minute)))
	}
	for i := range 1000 {
		e := view("visitor", at(t, "2026-11-30T10:00:00Z"))
		e.Name = fmt.Sprintf("other-%d", i)
		events = append(events, e)
	}
	rnd.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	for part := range slices.Chunk(events, 2020) {
		d.write(part...)
		if len(d.journal)%10 == 0 {
			d.run()
		}
	}
	d.run()
	c := d.must(CountsRequest{From: "2026-11-30", To: "2026-12-01"})
	if c.Total.PV != 100_000 || c.Lifetime.PV != 100_000 {
		t.Errorf("PV %d, lifetime %d; want 100,000", c.Total.PV, c.Lifetime.PV)
	}
	if uv := c.Total.UV.Value; uv < 19_514 || uv > 20_486 {
		t.Errorf("UV %d, want 20,000 within 2.43 %%", uv)
	}
	for i := range 1000 {
		if i%100 == 0 {
			d.want(CountsRequest{Event: fmt.Sprintf("other-%d", i), From: "2026-11-30", To: "2026-12-01"}, "2026-11-30 1/1, total 1/1")
		}
	}
	if c := d.must(CountsRequest{Event: Any, From: "2026-11-30", To: "2026-12-01"}); c.Total.PV != 101_000 {
		t.Errorf("PV of all events %d, want 101,000", c.Total.PV)
	}
	d.check()
}
