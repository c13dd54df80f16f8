package drops

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
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

func at(t testing.TB, s string) time.Time {
	t.Helper()
	x, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return x.UTC()
}

// driver stands in for the projector: a journal, and commits of batches to a real Redis.
type driver struct {
	t       testing.TB
	rdb     *redis.Client
	clock   *clock.Manual
	p       *Projection
	zones   map[string]*time.Location
	journal []projection.Record
	applied [testShards]uint64
	shift   int64 // seconds added to every expiry: the tests have their own dates, Redis has the machine's
}

func newDriver(t testing.TB, now time.Time) *driver {
	d := &driver{t: t, rdb: realtest.Redis(t).Client(), clock: clock.NewManual(now), zones: map[string]*time.Location{}, shift: 40 * 365 * 24 * 3600}
	d.p = NewProjection(Options{Zone: func(p string) *time.Location { return d.zones[p] }, Clock: d.clock})
	return d
}

func (d *driver) zone(project, name string) {
	d.t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		d.t.Fatal(err)
	}
	d.zones[project] = loc
}

// chunk is what a request to demo brought now.
func (d *driver) chunk(events, duplicates int, rejected ...string) projection.Chunk {
	c := projection.Chunk{Project: "demo", Received: d.clock.Now().UnixMilli(), Events: events, Duplicates: duplicates}
	c.Rejected = reject(rejected...)
	return c
}

// reject encodes one event for each code.
func reject(codes ...string) event.Rejections {
	var b event.Builder
	b.Reset("x", 0, false, false)
	for _, code := range codes {
		b.Reject(code, 1)
	}
	var rec event.Record
	if err := rec.Decode(event.AppendRecord(nil, event.Header{}, b.Bytes())); err != nil {
		panic(err)
	}
	return rec.Chunks[0].Rejected
}

// write appends a record to the journal, now.
func (d *driver) write(chunks ...projection.Chunk) {
	d.journal = append(d.journal, projection.Record{Seq: uint64(len(d.journal) + 1), Received: d.clock.Now().UnixMilli(), Chunks: chunks})
}

// commit folds the records from..to (sequences, both included) and commits the shards that keep says yes to.
func (d *driver) commit(from, to uint64, keep func(shard int) bool) {
	d.t.Helper()
	ctx := context.Background()
	b := &projection.Batch{Records: d.journal[from-1 : to]}
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
				if c[0] == "EXPIREAT" {
					c[2] = c[2].(int64) + d.shift
				}
				pipe.Do(ctx, c...)
			}
			return nil
		})
		if err != nil {
			d.t.Fatal(err)
		}
		d.applied[shard] = to
	}
}

func all(int) bool { return true }

// run commits everything that is not in yet, as one batch, and says that this is up to now.
func (d *driver) run() {
	d.t.Helper()
	if from, last := slices.Min(d.applied[:])+1, uint64(len(d.journal)); from <= last {
		d.commit(from, last, all)
		for s := range d.applied {
			d.applied[s] = last
		}
	}
	for s := range testShards {
		if err := d.rdb.HSet(context.Background(), projection.MetaKey(s, Name), "asof", d.clock.Now().UnixMilli()).Err(); err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *driver) drops(r Request) (*Drops, error) {
	if r.Project == "" {
		r.Project = "demo"
	}
	if r.Zone = d.zones[r.Project]; r.Zone == nil {
		r.Zone = time.UTC
	}
	return NewQuery(QueryOptions{Redis: d.rdb, Shards: testShards, Clock: d.clock}).Drops(context.Background(), r)
}

func (d *driver) must(r Request) *Drops {
	d.t.Helper()
	a, err := d.drops(r)
	if err != nil {
		d.t.Fatal(err)
	}
	for i := range a.Rows {
		d.balanced(&a.Rows[i].Sums)
	}
	d.balanced(&a.Total.Sums)
	return a
}

// balanced checks the identity that all this is about.
func (d *driver) balanced(s *Sums) {
	d.t.Helper()
	if s.Received != s.Accepted+s.Duplicates+s.Bots+s.RejectedTotal() {
		d.t.Errorf("%+v does not add up", s)
	}
}

// model is what Redis must hold, made the plain way: fields by key, and when the key goes, in seconds.
type model struct {
	hashes map[string]map[string]int64
	expiry map[string]int64
}

func (d *driver) model() *model {
	m := &model{map[string]map[string]int64{}, map[string]int64{}}
	ceil := func(ms int64) int64 { return (ms + 86_400_000 - 1) / 86_400_000 * 86_400_000 }
	for _, r := range d.journal {
		for _, c := range r.Chunks {
			loc := d.zones[c.Project]
			if loc == nil {
				loc = time.UTC
			}
			t := time.UnixMilli(c.Received).UTC()
			day, hour := period.Of(period.Day, t, loc), period.Of(period.Hour, t, loc)
			base := keyBase(shardOf(testShards, c.Project), c.Project)
			add := func(kind string, n int64) {
				if n == 0 {
					return
				}
				put := func(key, field string, to time.Time, keep time.Duration) {
					if m.hashes[key] == nil {
						m.hashes[key] = map[string]int64{}
					}
					m.hashes[key][field] += n
					m.expiry[key] = max(m.expiry[key], (ceil(max(to.UnixMilli(), r.Received))+keep.Milliseconds())/1000)
				}
				put(base+"min:"+t.Format("2006-01-02T15"), t.Format("04:")+kind, t.Truncate(time.Hour).Add(time.Hour), KeepMinutes)
				put(base+"hour:"+day.Label, period.HourField(hour.Label, day.Label)+":"+kind, day.To, KeepHours)
			}
			add("duplicates", int64(c.Duplicates))
			if c.Bot {
				add("bots", int64(c.Events-c.Duplicates))
			} else {
				add("accepted", int64(c.Events-c.Duplicates))
			}
			for code, n := range c.Rejected.All() {
				add("rejected."+code, n)
			}
		}
	}
	return m
}

// check compares every key in Redis with the model.
func (d *driver) check() {
	d.t.Helper()
	ctx, m := context.Background(), d.model()
	keys, err := d.rdb.Keys(ctx, "rc:{*}:drops:*").Result()
	if err != nil {
		d.t.Fatal(err)
	}
	for _, key := range keys {
		stored, err := d.rdb.HGetAll(ctx, key).Result()
		if err != nil {
			d.t.Fatal(err)
		}
		got := map[string]int64{}
		for f, v := range stored {
			if got[f], err = strconv.ParseInt(v, 10, 64); err != nil {
				d.t.Fatal(err)
			}
		}
		if !maps.Equal(got, m.hashes[key]) {
			d.t.Fatalf("%s is\n%v, want\n%v", key, got, m.hashes[key])
		}
		gone, err := d.rdb.ExpireTime(ctx, key).Result()
		if err != nil || int64(gone/time.Second)-d.shift != m.expiry[key] {
			d.t.Fatalf("%s goes at %d, %v; want %d", key, int64(gone/time.Second)-d.shift, err, m.expiry[key])
		}
	}
	if len(keys) != len(m.hashes) || len(keys) == 0 {
		d.t.Fatalf("%d keys, want %d", len(keys), len(m.hashes))
	}
}

// randomRecords makes a journal of several projects and zones; the requests of a record came a little before it, now and then in the minute
// before or long before.
func (d *driver) randomRecords(rnd *rand.Rand, records int) {
	d.zone("demo", "America/New_York")
	d.zone("two", "Asia/Kolkata")
	codes := []string{"too_late", "bad_user", "malformed", "too_frequent", "bad_ts"}
	for range records {
		var chunks []projection.Chunk
		for range rnd.IntN(20) {
			c := d.chunk(0, 0)
			c.Project = []string{"demo", "demo", "two", "three"}[rnd.IntN(4)]
			c.Received -= rnd.Int64N(100) * rnd.Int64N(1000)
			c.Bot = rnd.IntN(4) == 0
			if rnd.IntN(3) > 0 {
				c.Events = rnd.IntN(30)
				c.Duplicates = rnd.IntN(c.Events+1) * rnd.IntN(2)
			}
			var rejected []string
			for range rnd.IntN(6) * rnd.IntN(2) {
				rejected = append(rejected, codes[rnd.IntN(len(codes))])
			}
			c.Rejected = reject(rejected...)
			chunks = append(chunks, c)
		}
		d.write(chunks...)
		d.clock.Add(time.Duration(rnd.IntN(200)) * time.Second)
		if rnd.IntN(20) == 0 {
			d.clock.Add(time.Duration(rnd.IntN(300)) * time.Minute)
		}
	}
}

// brief is an answer as "label received=accepted+duplicates+bots+rejected …", rows without events left out.
func brief(a *Drops) (s string) {
	one := func(label string, x *Sums) {
		s += fmt.Sprintf("%s %d=%d+%d+%d", label, x.Received, x.Accepted, x.Duplicates, x.Bots)
		for _, code := range slices.Sorted(maps.Keys(x.Rejected)) {
			s += fmt.Sprintf(" %s:%d", code, x.Rejected[code])
		}
	}
	for i := range a.Rows {
		if r := &a.Rows[i]; r.Received > 0 {
			one(r.Label, &r.Sums)
			s += ", "
		}
	}
	one("total", &a.Total.Sums)
	return s
}
