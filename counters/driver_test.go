package counters

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/period"
	"github.com/rollcall/rollcall/internal/projection"
	"github.com/rollcall/rollcall/internal/realtest"
)

const testShards = 16

const dayMs = int64(day / time.Millisecond)

func ceilDay(ms int64) int64 { return (ms + dayMs - 1) / dayMs * dayMs }

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

// driver stands in for the projector: a journal, and commits of batches to a real Redis.
type driver struct {
	t       testing.TB
	server  *realtest.RedisServer
	rdb     *redis.Client
	clock   *clock.Manual
	p       *Projection
	zones   map[string]*time.Location
	journal []projection.Record
	applied [testShards]uint64
	users   int   // sent to Redis by PFADD
	shift   int64 // seconds added to every expiry: the tests have their own dates, Redis has the machine's
}

func newDriver(t testing.TB, now time.Time) *driver {
	d := &driver{t: t, server: realtest.Redis(t), clock: clock.NewManual(now), zones: map[string]*time.Location{}, shift: 40 * 365 * 24 * 3600}
	d.rdb = d.server.Client()
	d.p = NewProjection(Options{Zone: func(p string) *time.Location { return d.zones[p] }, Clock: d.clock})
	return d
}

// write appends a record to the journal, received now.
func (d *driver) write(events ...event.Event) {
	now := d.clock.Now().UnixMilli()
	for i := range events {
		if events[i].Project == "" {
			events[i].Project = "demo"
		}
		if events[i].Name == "" {
			events[i].Name = "page_view"
		}
		events[i].Received = now
	}
	d.journal = append(d.journal, projection.Record{Seq: uint64(len(d.journal) + 1), Received: now, Events: events})
}

// view is one event of demo.
func view(user string, t time.Time) event.Event { return event.Event{User: user, Time: t.UnixMilli()} }

// commit folds the records from..to (sequences, both included) and commits the shards that keep says yes to.
func (d *driver) commit(from, to uint64, keep func(shard int) bool) {
	d.t.Helper()
	ctx := context.Background()
	b := &projection.Batch{Records: d.journal[from-1 : to]}
	for _, r := range b.Records {
		b.Events += len(r.Events)
	}
	tx := projection.NewTx(testShards, d.applied[:], func(context.Context) (redis.UniversalClient, error) { return d.rdb, nil })
	if err := d.p.Project(ctx, b, tx); err != nil {
		d.t.Fatal(err)
	}
	for shard := range testShards {
		cmds := tx.Commands(shard)
		if len(cmds) == 0 || !keep(shard) {
			continue
		}
		_, err := d.rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, c := range cmds {
				if len(c) > 1000 {
					d.t.Fatalf("a command of %d words", len(c))
				}
				if c[0] == "PFADD" {
					d.users += len(c) - 2
				}
				if c[0] == "EXPIREAT" {
					c[2] = c[2].(int64) + d.shift
				}
				pipe.Do(ctx, c...)
			}
			pipe.HSet(ctx, projection.MetaKey(shard, Name), "offset", to, "asof", b.Records[len(b.Records)-1].Received)
			return nil
		})
		if err != nil {
			d.t.Fatal(err)
		}
		d.applied[shard] = to
	}
}

func all(int) bool { return true }

// run commits everything that is not in yet, as one batch.
func (d *driver) run() {
	d.t.Helper()
	from := slices.Min(d.applied[:]) + 1
	if last := uint64(len(d.journal)); from <= last {
		d.commit(from, last, all)
		for s := range d.applied {
			d.applied[s] = last
		}
	}
	asof := d.clock.Now().UnixMilli()
	for s := range testShards {
		d.rdb.HSet(context.Background(), projection.MetaKey(s, Name), "asof", asof)
	}
}

func (d *driver) counts(r CountsRequest) (*Counts, error) {
	if r.Project == "" {
		r.Project = "demo"
	}
	if r.Event == "" {
		r.Event = "page_view"
	}
	if r.Interval == 0 {
		r.Interval = period.Day
	}
	if r.Zone = d.zones[r.Project]; r.Zone == nil {
		r.Zone = time.UTC
	}
	return NewQuery(QueryOptions{Redis: d.rdb, Shards: testShards, Clock: d.clock}).Counts(context.Background(), r)
}

func (d *driver) must(r CountsRequest) *Counts {
	d.t.Helper()
	c, err := d.counts(r)
	if err != nil {
		d.t.Fatal(err)
	}
	return c
}

// brief is an answer as "label pv/uv, …; total pv/uv".
func brief(c *Counts) string {
	uv := func(e *Estimate) string {
		if e == nil {
			return "expired"
		}
		return strconv.FormatInt(e.Value, 10)
	}
	s := ""
	for _, r := range c.Rows {
		s += fmt.Sprintf("%s %d/%s, ", r.Label, r.PV, uv(r.UV))
	}
	return s + fmt.Sprintf("total %d/%s", c.Total.PV, uv(c.Total.UV))
}

func (d *driver) want(r CountsRequest, want string) {
	d.t.Helper()
	if got := brief(d.must(r)); got != want {
		d.t.Errorf("counts of %+v:\n got %s\nwant %s", r, got, want)
	}
}

// ownName tells which names have metrics of their own: the first Options.Names of each project.
func (d *driver) ownNames() map[string]map[string]bool {
	own := map[string]map[string]bool{}
	for _, r := range d.journal {
		for _, e := range r.Events {
			if own[e.Project] == nil {
				own[e.Project] = map[string]bool{}
			}
			if len(own[e.Project]) < d.p.o.Names {
				own[e.Project][e.Name] = true
			}
		}
	}
	return own
}

// model is what Redis must hold, made the plain way.
type model struct {
	pv     map[string]map[string]int64
	total  map[string]int64
	uv     map[string]*registers
	expiry map[string]int64 // seconds
}

func (d *driver) model() *model {
	m := &model{map[string]map[string]int64{}, map[string]int64{}, map[string]*registers{}, map[string]int64{}}
	keep, own := Keep{}.OrDefault(), d.ownNames()
	for _, r := range d.journal {
		for _, e := range r.Events {
			loc := d.zones[e.Project]
			if loc == nil {
				loc = time.UTC
			}
			t := time.UnixMilli(e.Time)
			day, hour := period.Of(period.Day, t, loc), period.Of(period.Hour, t, loc)
			live := func(key string, to time.Time, keep time.Duration) {
				until := ceilDay(max(to.UnixMilli(), r.Received)) + keep.Milliseconds()
				m.expiry[key] = max(m.expiry[key], until/1000)
			}
			metric := Other
			if own[e.Project][e.Name] {
				metric = metricOf(e.Name)
			}
			for _, name := range []string{metric, Any} {
				base := keyBase(shardOf(testShards, e.Project, name), e.Project)
				pv := pvKey(base, name, day.Label)
				if m.pv[pv] == nil {
					m.pv[pv] = map[string]int64{}
				}
				m.pv[pv][period.HourField(hour.Label, day.Label)]++
				if r.Received >= day.To.UnixMilli() && !e.Historical {
					m.pv[pv]["late"]++
					m.pv[pv]["late_at"] = max(m.pv[pv]["late_at"], r.Received)
				}
				m.total[totalKey(base, name)]++
				live(pv, day.To, keep.Days)
				if e.User == "" {
					continue
				}
				mk := markOf(e.User)
				for _, key := range []string{uvDayKey(base, name, day.Label), uvHourKey(base, name, hour.Label)} {
					if m.uv[key] == nil {
						m.uv[key] = new(registers)
					}
					m.uv[key][mk.register] = max(m.uv[key][mk.register], mk.value)
				}
				live(uvDayKey(base, name, day.Label), day.To, keep.Days)
				live(uvHourKey(base, name, hour.Label), hour.To, keep.Hours)
			}
		}
	}
	return m
}

// check compares every key in Redis with the model.
func (d *driver) check() {
	d.t.Helper()
	ctx, m := context.Background(), d.model()
	for project, names := range d.ownNames() {
		key := namesKey(keyBase(homeOf(testShards, project), project))
		got := d.rdb.SMembers(ctx, key).Val()
		if slices.Sort(got); !slices.Equal(got, slices.Sorted(maps.Keys(names))) {
			d.t.Fatalf("%s has %q, want %q", key, got, slices.Sorted(maps.Keys(names)))
		}
	}
	found := 0
	for _, key := range d.keys() {
		found++
		switch want, isPV := m.pv[key]; {
		case isPV:
			got, err := d.rdb.HGetAll(ctx, key).Result()
			if err != nil || len(got) != len(want) {
				d.t.Fatalf("%s: %v, %v; want %v", key, got, err, want)
			}
			for f, n := range want {
				if got[f] != strconv.FormatInt(n, 10) {
					d.t.Fatalf("%s %s is %s, want %d", key, f, got[f], n)
				}
			}
		case m.uv[key] != nil:
			got, _ := sketchAt(d.t, d.rdb, key)
			sameRegisters(d.t, key, got, m.uv[key])
		case m.total[key] != 0:
			if got, err := d.rdb.Get(ctx, key).Int64(); err != nil || got != m.total[key] {
				d.t.Fatalf("%s is %d, %v; want %d", key, got, err, m.total[key])
			}
		default:
			d.t.Fatalf("%s is not in the model", key)
		}
		want, ok := m.expiry[key]
		if !ok {
			want = -1
		}
		if got := d.expiry(key); got != want {
			d.t.Fatalf("%s goes at %d, want %d", key, got, want)
		}
	}
	if want := len(m.pv) + len(m.uv) + len(m.total); found != want {
		d.t.Fatalf("%d keys of counters in Redis, want %d", found, want)
	}
}

// expiry is when a key goes, in unix seconds; -1 = never.
func (d *driver) expiry(key string) int64 {
	d.t.Helper()
	at, err := d.rdb.ExpireTime(context.Background(), key).Result()
	if err != nil || at == -2 {
		d.t.Fatalf("EXPIRETIME %s: %v, %v", key, at, err)
	}
	if at < 0 {
		return -1
	}
	return int64(at/time.Second) - d.shift
}

// keys are those of counters, but for the lists of names.
func (d *driver) keys() []string {
	d.t.Helper()
	keys, err := d.rdb.Keys(context.Background(), "rc:{*}:counters:*").Result()
	if err != nil {
		d.t.Fatal(err)
	}
	return slices.DeleteFunc(keys, func(key string) bool { return strings.HasSuffix(key, ":names") })
}

// randomRecords makes a journal of several projects, zones and names around two clock changes, with skewed users.
func (d *driver) randomRecords(rnd *rand.Rand, records int) {
	d.zones["demo"], d.zones["two"] = zone(d.t, "America/New_York"), zone(d.t, "Asia/Kolkata")
	names := []string{"page_view", "buy", "*", "$signin", "阅读", "home:uv", "a}{b"}
	begin := d.clock.Now()
	for range records {
		var events []event.Event
		for range rnd.IntN(120) {
			e := event.Event{Project: "demo", Name: names[min(rnd.IntN(10), rnd.IntN(len(names)))]}
			if rnd.IntN(3) == 0 {
				e.Project = "two"
			}
			if rnd.IntN(10) > 0 {
				e.User = fmt.Sprintf("u%d", rnd.IntN(1+rnd.IntN(3000)))
			}
			e.Time = begin.Add(-time.Duration(rnd.Int64N(int64(30 * time.Hour)))).UnixMilli()
			events = append(events, e)
		}
		d.write(events...)
		d.clock.Add(time.Duration(rnd.IntN(30)) * time.Minute)
	}
}
