package drops

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/projection"
)

// Batches are cut at random, commits reach all shards, some or none, and after those that fail everything is read again: every number and every
// expiry must be the model's all the same.
func TestModel(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 11))
			d := newDriver(t, at(t, "2026-10-31T20:00:00Z")) // the day before New York's clock goes back
			d.randomRecords(rnd, 400)
			d.clock.Set(at(t, "2026-11-01T00:00:00Z")) // so that nothing is so old that a replay would prolong it
			last, next, faults := uint64(len(d.journal)), uint64(1), 0
			for next <= last {
				to := min(last, next+uint64(rnd.IntN(20)))
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
			}
			if faults < 3 {
				t.Fatalf("%d faults: the test wants some", faults)
			}
			d.check()
			d.compareWithQuery()
		})
	}
}

// compareWithQuery asks for every day and hour of every project and compares with what was sent.
func (d *driver) compareWithQuery() {
	d.t.Helper()
	d.clock.Set(time.UnixMilli(d.journal[len(d.journal)-1].Received))
	first := time.UnixMilli(d.journal[0].Received).Add(-24 * time.Hour)
	for _, project := range []string{"demo", "two", "three"} {
		var want Sums
		for _, r := range d.journal {
			for _, c := range r.Chunks {
				if c.Project == project {
					want.addChunk(&c)
				}
			}
		}
		want.Received = want.Accepted + want.Duplicates + want.Bots + want.RejectedTotal()
		for _, interval := range []string{"hour", "day"} {
			a := d.must(Request{Project: project, From: first.Format(time.DateOnly), Interval: interval})
			if got, want := fmt.Sprint(a.Total.Sums), fmt.Sprint(want); got != want || a.Total.Received == 0 {
				d.t.Errorf("%s by %s: %s, want %s", project, interval, got, want)
			}
		}
	}
}

// One batch with many requests of one minute costs a few commands, whatever their number.
func TestABatchCostsAFewCommands(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:30Z"))
	for range 500 {
		d.write(d.chunk(3, 1, "too_late"), d.chunk(1, 0))
	}
	tx := projection.NewTx(testShards, nil, nil)
	if err := d.p.Project(context.Background(), &projection.Batch{Records: d.journal}, tx); err != nil {
		t.Fatal(err)
	}
	var cmds []string
	for shard := range testShards {
		for _, c := range tx.Commands(shard) {
			cmds = append(cmds, fmt.Sprint(c...))
		}
	}
	if len(cmds) != 8 { // three kinds and an expiry, for the minute and for the hour
		t.Errorf("%d commands:\n%s", len(cmds), strings.Join(cmds, "\n"))
	}
	d.p.Reset() // that batch was never committed
	d.run()
	d.check()
}

// What a batch keeps must not hold the batch: only expiries are, and they are bounded.
func TestMemoryIsBounded(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:30Z"))
	for i := range 3 * maxExpiries {
		c := d.chunk(1, 0)
		c.Project = fmt.Sprint("p", i)
		d.journal = d.journal[:0]
		d.write(c)
		tx := projection.NewTx(testShards, nil, nil)
		if err := d.p.Project(context.Background(), &projection.Batch{Records: d.journal}, tx); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(d.p.expiries); n > maxExpiries {
		t.Errorf("%d expiries are remembered, at most %d should be", n, maxExpiries)
	}
	if n := len(d.p.minutes.order) + len(d.p.hours.order) + len(d.p.minutes.m); n != 0 {
		t.Errorf("%d cells are left of the last batch", n)
	}
}

// A rebuild from an old journal: what would be gone by now gets another day.
func TestOldKeysGetAnotherDay(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:30Z"))
	d.write(d.chunk(1, 0))
	d.clock.Add(400 * 24 * time.Hour)
	d.run()
	for _, key := range []string{"min:2026-11-30T12", "hour:2026-11-30"} {
		key = keyBase(shardOf(testShards, "demo"), "demo") + key
		gone, err := d.rdb.ExpireTime(context.Background(), key).Result()
		now := d.clock.Now().Unix() + d.shift
		if err != nil || int64(gone.Seconds()) < now+86400 || int64(gone.Seconds()) > now+2*86400 {
			t.Errorf("%s goes in %d s, %v; want one to two days", key, int64(gone.Seconds())-now, err)
		}
	}
}

func BenchmarkProject(b *testing.B) {
	for _, events := range []int{1, 1000} {
		b.Run(fmt.Sprint("events=", events), func(b *testing.B) {
			d := &driver{t: b, zones: map[string]*time.Location{}}
			p := NewProjection(Options{Zone: func(string) *time.Location { return time.UTC }})
			now := at(b, "2026-11-30T12:00:30Z").UnixMilli()
			var batch projection.Batch
			for i := range 50_000 / max(events, 50) { // chunks share records
				r := projection.Record{Seq: uint64(i + 1), Received: now}
				for range max(1, 50/events) {
					r.Chunks = append(r.Chunks, projection.Chunk{Project: "demo", Received: now, Events: events})
				}
				batch.Records = append(batch.Records, r)
			}
			b.ReportAllocs()
			for range b.N {
				if err := p.Project(context.Background(), &batch, projection.NewTx(testShards, d.applied[:], nil)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/50_000, "ns/event")
		})
	}
}
