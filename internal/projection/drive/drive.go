// Package drive stands in for the projector in the tests of projections: it cuts a journal of records into batches, folds them with the real
// projections, and commits to a real Redis the shards that it is told to, so that a test can stop anywhere and begin again.
package drive

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/projection"
)

// Driver drives projections that are folded one after the other. Make it with New.
type Driver struct {
	RDB     *redis.Client
	Shards  int
	Journal []projection.Record
	Shift   int64 // seconds added to every expiry: tests have their own dates, Redis has the machine's

	t           testing.TB
	projections []projection.Projection
	applied     [][]uint64 // by projection and shard
	read        uint64     // the last record folded in this epoch
	Bytes       int64      // of all words of all commands committed
}

// New makes a driver with an empty journal.
func New(t testing.TB, rdb *redis.Client, shards int, projections ...projection.Projection) *Driver {
	d := &Driver{RDB: rdb, Shards: shards, t: t, projections: projections}
	for range projections {
		d.applied = append(d.applied, make([]uint64, shards))
	}
	return d
}

// Write appends a record, received at a time in unix milliseconds. Events without a project are demo's.
func (d *Driver) Write(received int64, events ...event.Event) {
	for i := range events {
		if events[i].Project == "" {
			events[i].Project = "demo"
		}
		events[i].Received = received
	}
	d.Journal = append(d.Journal, projection.Record{Seq: uint64(len(d.Journal) + 1), Received: received, Events: events})
}

// Restart begins a new epoch: caches are dropped, and reading goes on behind the lowest offset in Redis.
func (d *Driver) Restart() {
	d.read = uint64(len(d.Journal))
	for i, p := range d.projections {
		p.Reset()
		d.read = min(d.read, slices.Min(d.applied[i]))
	}
}

// Batch folds up to n records that were not read yet, and commits those shards of those projections to which keep says yes; nil = all. A
// shard that was left out must be followed by Restart.
func (d *Driver) Batch(n int, keep func(projection, shard int) bool) error {
	from := int(d.read)
	to := min(from+n, len(d.Journal))
	if to == from {
		return nil
	}
	b := &projection.Batch{}
	for _, r := range d.Journal[from:to] {
		r.Events = slices.Clone(r.Events) // projections write into them
		b.Records = append(b.Records, r)
		b.Events += len(r.Events)
	}
	d.read = uint64(to)
	ctx := context.Background()
	for i, p := range d.projections {
		tx := projection.NewTx(d.Shards, d.applied[i], func(context.Context) (redis.UniversalClient, error) { return d.RDB, nil })
		if err := p.Project(ctx, b, tx); err != nil {
			return err
		}
		for shard := range d.Shards {
			if keep != nil && !keep(i, shard) || d.applied[i][shard] >= d.read {
				continue
			}
			d.commit(p.Name(), shard, tx.Commands(shard), &d.Journal[to-1])
			d.applied[i][shard] = d.read
		}
	}
	return nil
}

func (d *Driver) commit(name string, shard int, cmds [][]any, last *projection.Record) {
	d.t.Helper()
	ctx := context.Background()
	_, err := d.RDB.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, c := range cmds {
			if len(c) > 1000 {
				d.t.Fatalf("%v: a command of %d words", c[:2], len(c))
			}
			for _, word := range c {
				switch w := word.(type) {
				case string:
					d.Bytes += int64(len(w))
				case []byte:
					d.Bytes += int64(len(w))
				case int, int64:
					d.Bytes += 8
				default:
					d.t.Fatalf("%v: a word of type %T", c[:2], word)
				}
			}
			c = slices.Clone(c)
			for i, word := range c[:len(c)-1] {
				switch {
				case i == 0 && word == "EXPIREAT":
					c[2] = c[2].(int64) + d.Shift
				case word == "EXAT":
					c[i+1] = c[i+1].(int64) + d.Shift
				}
			}
			pipe.Do(ctx, c...)
		}
		pipe.HSet(ctx, projection.MetaKey(shard, name), "offset", last.Seq, "asof", last.Received)
		return nil
	})
	if err != nil {
		d.t.Fatal(err)
	}
}

// Run commits everything that is not in yet, in batches of up to n records.
func (d *Driver) Run(n int) {
	d.t.Helper()
	for d.read < uint64(len(d.Journal)) {
		if err := d.Batch(n, nil); err != nil {
			d.t.Fatal(err)
		}
	}
}

// RunHurt commits everything, in batches of random size, half of which come in only partly and are followed by a new epoch.
func (d *Driver) RunHurt(rnd *rand.Rand, n int) {
	d.t.Helper()
	for d.read < uint64(len(d.Journal)) {
		hurt := rnd.IntN(2) == 0
		var keep func(projection, shard int) bool
		if hurt {
			keep = func(int, int) bool { return rnd.IntN(2) == 0 }
		}
		if err := d.Batch(1+rnd.IntN(n), keep); err != nil {
			d.t.Fatal(err)
		}
		if hurt {
			d.Restart()
		}
	}
}
