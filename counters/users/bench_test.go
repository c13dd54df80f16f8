package users

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/memo"
	"github.com/rollcall/rollcall/internal/ordinal"
	"github.com/rollcall/rollcall/internal/period"
	"github.com/rollcall/rollcall/internal/projection"
	"github.com/rollcall/rollcall/internal/realtest"
)

const benchShards = 16

// someOf picks n different ordinals below population.
func someOf(rnd *rand.Rand, n, population int, shape string) *roaring.Bitmap {
	b := roaring.New()
	if shape == "dense" {
		b.AddRange(0, uint64(n))
		return b
	}
	for int(b.GetCardinality()) < n {
		part := make([]uint32, n-int(b.GetCardinality()))
		for i := range part {
			x := rnd.Float64()
			if shape == "recent" { // who came last comes most
				x = 1 - x*x*x
			}
			part[i] = uint32(min(x, 1-1e-12) * float64(population))
		}
		slices.Sort(part)
		b.AddMany(part)
	}
	return b
}

func used(b *testing.B, rdb redis.UniversalClient) int64 {
	b.Helper()
	s, err := rdb.Do(context.Background(), "MEMORY", "STATS").Slice()
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; i+1 < len(s); i += 2 {
		if s[i] == "dataset.bytes" {
			return s[i+1].(int64)
		}
	}
	b.Fatal("no dataset.bytes")
	return 0
}

func timed(b *testing.B, fn func() error) time.Duration {
	b.Helper()
	began := time.Now()
	if err := fn(); err != nil {
		b.Fatal(err)
	}
	return time.Since(began)
}

// BenchmarkSetsAgainstRedis puts the same users of 500 million into our sets, a SET and a string of bits, and counts them. Run it with
// -benchtime 1x.
func BenchmarkSetsAgainstRedis(b *testing.B) {
	const population = 500_000_000
	ctx := context.Background()
	for _, n := range []int{1_000_000, 20_000_000} {
		for _, shape := range []string{"random", "recent", "dense"} {
			b.Run(fmt.Sprintf("users=%dM/%s", n/1_000_000, shape), func(b *testing.B) {
				rdb := realtest.Redis(b, "appendonly no", `save ""`).Client()
				shards := make([]*roaring.Bitmap, benchShards)
				for i := range shards {
					shards[i] = someOf(rand.New(rand.NewPCG(1, uint64(i))), n/benchShards, population/benchShards, shape)
				}
				base := used(b, rdb)
				ours := timed(b, func() error {
					for i, set := range shards {
						value, err := encode(set, restated{})
						if err == nil {
							err = rdb.Set(ctx, fmt.Sprint("set", i), value, 0).Err()
						}
						if err != nil {
							return err
						}
					}
					return nil
				})
				bytes := used(b, rdb) - base
				count := timed(b, func() error {
					total := 0
					for i := range shards {
						text, err := rdb.Get(ctx, fmt.Sprint("set", i)).Result()
						if err != nil {
							return err
						}
						d, err := decode(text)
						if err != nil {
							return err
						}
						total += int(d.bits.GetCardinality())
					}
					if total != n/benchShards*benchShards {
						return fmt.Errorf("%d users", total)
					}
					return nil
				})
				all := func(command string, words int, arg func(shard int, o uint32) []any) time.Duration {
					return timed(b, func() error {
						for i, set := range shards {
							it := set.Iterator()
							for it.HasNext() {
								pipe := rdb.Pipeline()
								for range 10_000 / words {
									args := []any{command, command + "key"}
									for range words {
										if it.HasNext() {
											args = append(args, arg(i, it.Next())...)
										}
									}
									if len(args) > 2 {
										pipe.Do(ctx, args...)
									}
								}
								if _, err := pipe.Exec(ctx); err != nil {
									return err
								}
							}
						}
						return nil
					})
				}
				id := func(shard int, o uint32) int64 { return int64(o)*benchShards + int64(shard) }
				base = used(b, rdb)
				bits := all("SETBIT", 1, func(shard int, o uint32) []any { return []any{id(shard, o), 1} })
				bitBytes := used(b, rdb) - base
				bitCount := timed(b, func() error { return rdb.BitCount(ctx, "SETBITkey", nil).Err() })
				rdb.Del(ctx, "SETBITkey")
				base = used(b, rdb)
				set := all("SADD", 1000, func(shard int, o uint32) []any { return []any{id(shard, o)} })
				setBytes := used(b, rdb) - base
				per := func(x int64) float64 { return float64(x) / float64(n) }
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(per(bytes), "B/user")
				b.ReportMetric(per(setBytes)/per(bytes), "x-SET-bytes")
				b.ReportMetric(per(bitBytes)/per(bytes), "x-SETBIT-bytes")
				b.ReportMetric(float64(ours.Milliseconds()), "ms-write")
				b.ReportMetric(float64(set.Milliseconds()), "ms-write-SET")
				b.ReportMetric(float64(bits.Milliseconds()), "ms-write-SETBIT")
				b.ReportMetric(float64(count.Microseconds())/1000, "ms-count")
				b.ReportMetric(float64(bitCount.Microseconds())/1000, "ms-count-SETBIT")
			})
		}
	}
}

// month30 stores 30 days of a million actives each, of 12 million users of whom the recent ones come most, as they stand when a day is over.
func month30(b *testing.B, rdb redis.UniversalClient, from time.Time) (days []period.Bucket) {
	ctx := context.Background()
	rnd := rand.New(rand.NewPCG(1, 1))
	since := sinceKey(keyBase(homeOf(benchShards, "demo"), "demo"))
	rdb.HSet(ctx, since, "", 1, "*", 1)
	day := period.Of(period.Day, from, time.UTC)
	for range 84 {
		days = append(days, day)
		for shard := range benchShards {
			value, err := encode(someOf(rnd, 1_000_000/benchShards, 12_000_000/benchShards, "recent"), restated{})
			if err != nil {
				b.Fatal(err)
			}
			base := keyBase(shard, "demo")
			if err := rdb.Set(ctx, setKey(base, Active, "*", day.Label), value, 0).Err(); err != nil {
				b.Fatal(err)
			}
			value, err = encode(someOf(rnd, 20_000/benchShards, 12_000_000/benchShards, "random"), restated{})
			if err != nil {
				b.Fatal(err)
			}
			rdb.Set(ctx, setKey(base, First, "*", day.Label), value, 0)
		}
		day = day.Next(time.UTC)
	}
	for shard := range benchShards {
		rdb.HSet(ctx, projection.MetaKey(shard, Name), "asof", day.To.UnixMilli())
		rdb.HSet(ctx, projection.MetaKey(shard, counters.Name), "asof", day.To.UnixMilli())
	}
	return days
}

// BenchmarkMonth asks for exact MAU over 30 days of a million actives, and for 12 weeks of retention, on one core (Redis has another). The bare
// union reads the same keys, decodes them and unites them, and does nothing else.
func BenchmarkMonth(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	ctx := context.Background()
	rdb := realtest.Redis(b, "appendonly no", `save ""`).Client()
	days := month30(b, rdb, at(b, "2026-08-03T00:00:00Z"))
	c := clock.NewManual(days[len(days)-1].To.Add(time.Hour))
	ask := func() *Query {
		return NewQuery(QueryOptions{Redis: rdb, Shards: benchShards, Clock: c, Memo: memo.New(c), Absent: memo.NewAbsent(c), Counts: counters.NewQuery(counters.QueryOptions{Redis: rdb, Shards: benchShards, Clock: c})})
	}
	about := About{Project: "demo", Zone: time.UTC, Exact: []string{"*"}, From: days[0].Label, To: days[30].Label}
	bare := func() (n uint64) {
		for shard := range benchShards {
			keys := make([]string, 30)
			for i := range keys {
				keys[i] = setKey(keyBase(shard, "demo"), Active, "*", days[i].Label)
			}
			sets := make([]*roaring.Bitmap, 30)
			for i, v := range rdb.MGet(ctx, keys...).Val() {
				sets[i] = roaring.New()
				if _, err := sets[i].FromBuffer([]byte(v.(string)[setHeader:])); err != nil {
					b.Fatal(err)
				}
			}
			n += roaring.FastOr(sets...).GetCardinality()
		}
		return n
	}
	b.Run("MAU", func(b *testing.B) {
		var ours, floor time.Duration
		for b.Loop() {
			began := time.Now()
			want := bare()
			between := time.Now()
			u, err := ask().Users(ctx, Request{About: about, Event: "*", Interval: period.Month, Method: Exact})
			ours, floor = ours+time.Since(between), floor+between.Sub(began)
			if err != nil || u.Total.Exact.Value != int64(want) {
				b.Fatalf("%v, %v; want %d", u, err, want)
			}
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(ours.Microseconds())/1000/float64(b.N), "ms")
		b.ReportMetric(float64(ours)/float64(floor), "x-bare-union")
	})
	b.Run("active-30-days", func(b *testing.B) {
		for b.Loop() {
			r := ActiveRequest{About: about, Event: "*", Interval: period.Day}
			r.From, r.To = days[50].Label, days[80].Label
			if _, err := ask().Active(ctx, r); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("retention-12x12-weeks", func(b *testing.B) {
		for b.Loop() {
			r := RetentionRequest{About: about, Cohort: First, Start: "*", Return: "*", Interval: period.Week, Periods: 12}
			r.From, r.To = days[0].Label, days[83].Label
			if _, err := ask().Retention(ctx, r); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkKeptAnswer asks for UV over 30 closed days: from memory, against PFCOUNT over their 30 sketches.
func BenchmarkKeptAnswer(b *testing.B) {
	ctx := context.Background()
	rdb := realtest.Redis(b, "appendonly no", `save ""`).Client()
	c := clock.NewManual(at(b, "2026-12-07T12:00:00Z"))
	p := counters.NewProjection(counters.Options{Zone: func(string) *time.Location { return time.UTC }, Clock: c})
	rnd := rand.New(rand.NewPCG(1, 1))
	first := at(b, "2026-11-01T12:00:00Z")
	for day := range 30 {
		var events []event.Event
		for range 20_000 {
			events = append(events, event.Event{Project: "demo", Name: "page_view", User: strconv.Itoa(rnd.IntN(100_000)), Time: first.AddDate(0, 0, day).UnixMilli()})
		}
		tx := projection.NewTx(benchShards, nil, func(context.Context) (redis.UniversalClient, error) { return rdb, nil })
		rec := projection.Record{Seq: uint64(day + 1), Received: c.Now().UnixMilli(), Events: events}
		if err := p.Project(ctx, &projection.Batch{Records: []projection.Record{rec}, Events: len(events)}, tx); err != nil {
			b.Fatal(err)
		}
		for shard := range benchShards {
			pipe := rdb.Pipeline()
			for _, cmd := range tx.Commands(shard) {
				pipe.Do(ctx, cmd...)
			}
			pipe.HSet(ctx, projection.MetaKey(shard, counters.Name), "asof", c.Now().UnixMilli())
			if _, err := pipe.Exec(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
	q := counters.NewQuery(counters.QueryOptions{Redis: rdb, Shards: benchShards, Clock: c, Memo: memo.New(c)})
	r := counters.CountsRequest{Project: "demo", Zone: time.UTC, Event: "page_view", From: "2026-11-01", To: "2026-12-01", Interval: period.Month}
	keys := rdb.Keys(ctx, "rc:{*}:counters:demo:uv:page_view:2026-11-*").Val()
	if len(keys) != 30 {
		b.Fatalf("%d sketches", len(keys))
	}
	const naive = 3000
	began := time.Now()
	for range naive {
		if n := rdb.PFCount(ctx, keys...).Val(); n < 95_000 {
			b.Fatalf("%d users", n)
		}
	}
	floor := float64(time.Since(began)) / naive
	for b.Loop() {
		a, err := q.Counts(ctx, r)
		if err != nil || a.Total.UV.Value < 95_000 || !a.Total.Complete {
			b.Fatalf("%+v, %v", a, err)
		}
	}
	b.ReportMetric(floor/(float64(b.Elapsed())/float64(b.N)), "x-PFCOUNT")
}

// BenchmarkWriteAmplification brings a million known users to a day, in random order and 5,000 at a time, and tells how many bytes are written to
// Redis for each new member of the set. Run it with -benchtime 1x.
func BenchmarkWriteAmplification(b *testing.B) {
	const members, each = 1_000_000, 5000
	ctx := context.Background()
	rdb := realtest.Redis(b, "appendonly no", `save ""`).Client()
	c := clock.NewManual(at(b, "2026-11-30T12:00:00Z"))
	users := NewProjection(Options{Zone: func(string) *time.Location { return time.UTC }, Exact: func(string) []string { return []string{"*"} }, Clock: c})
	ordinals := ordinal.NewProjection(ordinal.Options{})
	seq := uint64(0)
	// day sends everybody and returns the bytes that users wrote.
	day := func(date string, order []int) (bytes int64) {
		when := at(b, date+"T10:00:00Z").UnixMilli()
		for part := range slices.Chunk(order, each) {
			events := make([]event.Event, len(part))
			for i, u := range part {
				events[i] = event.Event{Project: "demo", Name: "page_view", User: strconv.Itoa(u), Time: when}
			}
			seq++
			batch := &projection.Batch{Events: len(part), Records: []projection.Record{{Seq: seq, Received: c.Now().UnixMilli(), Events: events}}}
			for _, p := range []projection.Projection{ordinals, users} {
				tx := projection.NewTx(benchShards, nil, func(context.Context) (redis.UniversalClient, error) { return rdb, nil })
				if err := p.Project(ctx, batch, tx); err != nil {
					b.Fatal(err)
				}
				pipe := rdb.Pipeline()
				for shard := range benchShards {
					for _, cmd := range tx.Commands(shard) {
						pipe.Do(ctx, cmd...)
						if p == projection.Projection(users) {
							bytes += size(cmd)
						}
					}
				}
				if _, err := pipe.Exec(ctx); err != nil {
					b.Fatal(err)
				}
			}
		}
		return bytes
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	b.ReportMetric(float64(day("2026-11-29", rnd.Perm(members)))/members, "B/new-user")
	b.ReportMetric(float64(day("2026-11-30", rnd.Perm(members)))/members, "B/member")
	b.ReportMetric(0, "ns/op")
}

// size is the bytes of a command's words.
func size(cmd []any) (n int64) {
	for _, word := range cmd {
		switch w := word.(type) {
		case string:
			n += int64(len(w))
		case []byte:
			n += int64(len(w))
		default:
			n += 8
		}
	}
	return n
}
