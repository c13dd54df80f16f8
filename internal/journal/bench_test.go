package journal

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/event"
)

// BenchmarkAppend measures durable appends: P producers that each wait for their answer, B events of about 200 bytes a call.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct{ producers, events int }{{1, 1}, {16, 1}, {64, 1}, {256, 1}, {16, 100}, {16, 1000}} {
		b.Run(fmt.Sprintf("P%dB%d", c.producers, c.events), func(b *testing.B) {
			j, err := Open(b.Context(), Options{Dir: b.TempDir(), Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
			if err != nil {
				b.Fatal(err)
			}
			defer j.Close(context.WithoutCancel(b.Context()))
			list := make([]string, c.events)
			for i := range list {
				list[i] = fmt.Sprint("0191d5a8-0000-7000-8000-", i)
			}
			data := chunk(150, list...)
			var left atomic.Int64
			left.Store(int64(b.N))
			times := make([][]time.Duration, c.producers)
			var wg sync.WaitGroup
			b.ResetTimer()
			for p := range c.producers {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						t := time.Now()
						if _, err := j.Append(b.Context(), data); err != nil {
							b.Error(err)
							return
						}
						times[p] = append(times[p], time.Since(t))
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			all := slices.Concat(times...)
			slices.Sort(all)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
			b.ReportMetric(float64(j.number.Load())/b.Elapsed().Seconds(), "records/s")
			b.ReportMetric(float64(all[len(all)/2].Microseconds())/1e3, "p50-ms")
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1e3, "p99-ms")
		})
	}
}

// BenchmarkRead measures the ordered read of records of about 64 KiB and of 500 bytes.
func BenchmarkRead(b *testing.B) {
	for _, size := range []int{500, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			j, err := Open(b.Context(), Options{Dir: b.TempDir(), Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
			if err != nil {
				b.Fatal(err)
			}
			defer j.Close(context.WithoutCancel(b.Context()))
			n := min(256<<20/size, 20000)
			data := make([]byte, size)
			rand.Read(data)
			data = event.AppendRecord(nil, event.Header{}, data)
			for i := range n {
				if _, err := j.publish(uint64(i+1), data); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(n * size))
			b.ResetTimer()
			for range b.N {
				r, err := j.Read(b.Context(), 1)
				if err != nil {
					b.Fatal(err)
				}
				for range n {
					if _, err := r.Next(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				r.Close()
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkTail measures the way from the call of Append to the reader that waits at the end.
func BenchmarkTail(b *testing.B) {
	j, err := Open(b.Context(), Options{Dir: b.TempDir(), Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close(context.WithoutCancel(b.Context()))
	r, err := j.Read(b.Context(), 1)
	if err != nil {
		b.Fatal(err)
	}
	c := chunk(200, "id")
	var times []time.Duration
	for b.Loop() {
		t := time.Now()
		go func() {
			if _, err := j.Append(b.Context(), c); err != nil {
				b.Error(err)
			}
		}()
		if _, err := r.Next(b.Context()); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(t))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds())/1e3, "p50-ms")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1e3, "p99-ms")
}
