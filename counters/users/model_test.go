package users

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/ident"
	"github.com/rollcall/rollcall/internal/ordinal"
	"github.com/rollcall/rollcall/internal/period"
	"github.com/rollcall/rollcall/internal/projection/drive"
	"github.com/rollcall/rollcall/internal/realtest"
)

const (
	testShards = 4
	dayMs      = int64(24 * time.Hour / time.Millisecond)
	shift      = 40 * 365 * 24 * 3600 // seconds: the tests have their own dates, Redis has the machine's
)

func at(t testing.TB, s string) time.Time {
	t.Helper()
	x, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return x.UTC()
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// driver drives ordinals and sets over a real Redis.
type driver struct {
	*drive.Driver
	t      testing.TB
	server *realtest.RedisServer
	clock  *clock.Manual
	p      *Projection
	zones  map[string]*time.Location
	exact  map[string][]string
}

func newDriver(t testing.TB, now time.Time) *driver {
	d := &driver{t: t, server: realtest.Redis(t), clock: clock.NewManual(now), zones: map[string]*time.Location{}, exact: map[string][]string{}}
	d.p = NewProjection(Options{
		Zone: func(p string) *time.Location { return d.zones[p] },
		Exact: func(p string) []string {
			if names, ok := d.exact[p]; ok {
				return names
			}
			return []string{counters.Any}
		},
		Clock: d.clock,
	})
	d.Driver = drive.New(t, d.server.Client(), testShards, ordinal.NewProjection(ordinal.Options{}), d.p)
	d.Shift = shift
	return d
}

// write appends a record, received now.
func (d *driver) write(events ...event.Event) {
	for i := range events {
		if events[i].Name == "" {
			events[i].Name = "page_view"
		}
	}
	d.Write(d.clock.Now().UnixMilli(), events...)
}

func view(user string, t time.Time) event.Event { return event.Event{User: user, Time: t.UnixMilli()} }

func (d *driver) zone(project string) *time.Location {
	if loc := d.zones[project]; loc != nil {
		return loc
	}
	return time.UTC
}

// want is what a stored set must be.
type want struct {
	users    map[string]bool
	expiry   int64 // unix seconds
	restated restated
}

// model makes every set the plain way, from the whole journal. Of First sets, only when they were restated is sure: how many changes it took
// hangs on the order of the late events.
func (d *driver) model() map[string]*want {
	sets, keep := map[string]*want{}, counters.Keep{}.OrDefault()
	set := func(key string) *want {
		if sets[key] == nil {
			sets[key] = &want{users: map[string]bool{}}
		}
		return sets[key]
	}
	first := map[[3]string]period.Bucket{} // by project, metric and user
	for _, r := range d.Journal {
		for _, e := range r.Events {
			if e.User == "" || e.Bot {
				continue
			}
			loc := d.zone(e.Project)
			day := period.Of(period.Day, time.UnixMilli(e.Time), loc)
			base := keyBase(ident.Shard(testShards, e.Project, e.User), e.Project)
			for _, name := range d.p.o.Exact(e.Project) {
				if name != counters.Any && name != e.Name {
					continue
				}
				until := func(s *want, day period.Bucket) {
					ms := max(day.To.UnixMilli(), r.Received)
					s.expiry = max(s.expiry, ((ms+dayMs-1)/dayMs*dayMs+keep.Days.Milliseconds())/1000)
				}
				metric := metricOf(name)
				s := set(setKey(base, Active, metric, day.Label))
				until(s, day)
				late := func(s *want, day period.Bucket) {
					if r.Received >= day.To.UnixMilli() && !e.Historical {
						s.restated.changes++
						s.restated.at = max(s.restated.at, r.Received)
					}
				}
				if !s.users[e.User] {
					s.users[e.User] = true
					late(s, day)
				}
				who := [3]string{e.Project, metric, e.User}
				began, came := first[who]
				if came && !day.From.Before(began.From) {
					continue
				}
				first[who] = day
				s = set(setKey(base, First, metric, day.Label))
				s.users[e.User] = true
				until(s, day)
				late(s, day)
				if came {
					s := set(setKey(base, First, metric, began.Label))
					delete(s.users, e.User)
					until(s, began)
					late(s, began)
				}
			}
		}
	}
	return sets
}

// check compares every set in Redis with the model, and every first day with the First sets.
func (d *driver) check() {
	d.t.Helper()
	ctx, sets := context.Background(), d.model()
	dict := ordinal.NewDictionary(d.RDB, testShards)
	keys, err := d.RDB.Keys(ctx, "rc:{*}:users:*").Result()
	if err != nil {
		d.t.Fatal(err)
	}
	found := map[string]bool{}
	began := map[string]string{} // key and ordinal, by first day
	for _, key := range keys {
		part := strings.Split(key, ":") // rc {0a} users demo on * 2015-05-17
		if part[4] != "on" && part[4] != "first" {
			continue
		}
		stored := d.RDB.Get(ctx, key).Val()
		set, err := decode(stored)
		if err != nil {
			d.t.Fatalf("%s: %v", key, err)
		}
		shard := slices.Index([]string{"{00}", "{01}", "{02}", "{03}"}, part[1])
		w := sets[key]
		if w == nil {
			d.t.Fatalf("%s is not in the model", key)
		}
		names, err := dict.Names(ctx, part[3], shard, set.bits.ToArray())
		if err != nil {
			d.t.Fatal(err)
		}
		if have := slices.Sorted(slices.Values(names)); !slices.Equal(have, slices.Sorted(maps.Keys(w.users))) {
			d.t.Fatalf("%s has %v, want %v", key, have, slices.Sorted(maps.Keys(w.users)))
		}
		if part[4] == "first" {
			if w.restated.at != 0 && set.at != w.restated.at && w.restated.changes == 1 {
				d.t.Fatalf("%s was restated at %d, want %d", key, set.at, w.restated.at)
			}
			for _, o := range set.bits.ToArray() {
				seg, at := ordinal.SegmentOf(o)
				began[fmt.Sprint(beganKey(keyBase(shard, part[3]), part[5], seg.Number), "/", at)] = part[6]
			}
		} else if set.restated != w.restated {
			d.t.Fatalf("%s is restated %+v, want %+v", key, set.restated, w.restated)
		}
		if got := int64(d.RDB.ExpireTime(ctx, key).Val()/time.Second) - shift; got != w.expiry {
			d.t.Fatalf("%s goes at %d, want %d", key, got, w.expiry)
		}
		found[key] = true
	}
	for key, w := range sets {
		if !found[key] && len(w.users) > 0 {
			d.t.Fatalf("%s is missing", key)
		}
	}
	n := 0
	for _, key := range keys {
		if !strings.Contains(key, ":began:") {
			continue
		}
		days := d.RDB.Get(ctx, key).Val()
		for i := range len(days) / 2 {
			number := uint16(days[2*i]) | uint16(days[2*i+1])<<8
			want := began[fmt.Sprint(key, "/", i)]
			if number == 0 && want == "" {
				continue
			}
			n++
			if dayLabel(number) != want {
				d.t.Fatalf("%s says %s of user %d, the set says %q", key, dayLabel(number), i, want)
			}
		}
	}
	if n != len(began) {
		d.t.Fatalf("%d first days, want %d", n, len(began))
	}
}

// random writes records of two projects, of which one has sets of two names, around a clock change; some are imported, many are late.
func (d *driver) random(rnd *rand.Rand, records int) {
	d.zones["demo"], d.zones["two"] = zone(d.t, "America/New_York"), zone(d.t, "Asia/Kolkata")
	d.exact["two"] = []string{"buy", "阅读", counters.Any}
	for range records {
		var events []event.Event
		historical := rnd.IntN(8) == 0
		for range rnd.IntN(150) {
			e := event.Event{Project: "demo", Name: []string{"page_view", "buy", "阅读", "*"}[rnd.IntN(4)], Historical: historical}
			if rnd.IntN(3) == 0 {
				e.Project = "two"
			}
			if rnd.IntN(10) > 0 {
				e.User = fmt.Sprintf("u%d", rnd.IntN(1+rnd.IntN(4000)))
			}
			e.Bot = rnd.IntN(30) == 0
			e.Time = d.clock.Now().Add(-time.Duration(rnd.ExpFloat64() * float64(20*time.Hour))).UnixMilli()
			events = append(events, e)
		}
		d.write(events...)
		d.clock.Add(time.Duration(rnd.IntN(90)) * time.Minute)
	}
}

// noRead answers a Tx that must not read.
func noRead(t testing.TB) func(context.Context) (redis.UniversalClient, error) {
	return func(context.Context) (redis.UniversalClient, error) {
		t.Fatal("the projection reads")
		return nil, nil
	}
}
