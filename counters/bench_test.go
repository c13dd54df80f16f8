package counters

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/projection"
	"github.com/rollcall/rollcall/internal/realtest"
)

// BenchmarkProject folds batches of 50,000 events in records of 1,000, names shared inside a record as the codec does; without Redis but for the
// first load of the mirrors.
func BenchmarkProject(b *testing.B) {
	for _, c := range []struct{ names, days, users int }{{2, 1, 100_000}, {10, 1, 100_000}, {20, 3, 100_000}, {20, 3, 5_000_000}} {
		b.Run(fmt.Sprintf("names=%d/days=%d/users=%d", c.names, c.days, c.users), func(b *testing.B) {
			rnd := rand.New(rand.NewPCG(1, 1))
			const seen = 1_796_000_000_000
			seq := uint64(0)
			var batches []*projection.Batch
			for range 10 {
				batch := &projection.Batch{}
				for range 50 {
					seq++
					names := make([]string, c.names)
					for i := range names {
						names[i] = strings.Clone(fmt.Sprintf("event_name_%d", i))
					}
					rec := projection.Record{Seq: seq, Received: seen}
					for range 1000 {
						rec.Events = append(rec.Events, event.Event{
							Project: "demo", Name: names[rnd.IntN(c.names)], User: fmt.Sprintf("user-%d", rnd.IntN(c.users)),
							Time: seen - rnd.Int64N(int64(c.days)*dayMs), Received: seen,
						})
					}
					batch.Records = append(batch.Records, rec)
					batch.Events += 1000
				}
				batches = append(batches, batch)
			}
			rdb := realtest.Redis(b).Client()
			p := NewProjection(Options{Zone: func(string) *time.Location { return time.UTC }})
			commands := 0
			run := func(i int) {
				batch := batches[i%len(batches)]
				tx := projection.NewTx(16, nil, func(context.Context) (redis.UniversalClient, error) { return rdb, nil })
				if err := p.Project(context.Background(), batch, tx); err != nil {
					b.Fatal(err)
				}
				for s := range 16 {
					commands += len(tx.Commands(s))
				}
			}
			for i := range len(batches) {
				run(i)
			}
			commands = 0
			b.ResetTimer()
			for i := range b.N {
				run(i)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/50_000, "ns/event")
			b.ReportMetric(float64(commands)/float64(b.N), "commands/batch")
		})
	}
}
