package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/ingest/drops"
	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/journal"
	"github.com/rollcall/rollcall/internal/projection"
	"github.com/rollcall/rollcall/internal/redisx"
)

// pipeRun is one run of part (a): events counted into Redis.
type pipeRun struct {
	Rate     float64 // events per second
	RedisCPU float64 // µs of Redis per event
	OwnCPU   float64 // µs of the counting process per event
	Journal  float64 // bytes on disk per event; 0 for naive
	Memory   float64 // bytes of Redis per event
}

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

// freshRedis is an empty managed Redis in a folder of its own.
func freshRedis(ctx context.Context) (*redisx.Redis, func(), error) {
	dir, err := os.MkdirTemp("", "rollcall-bench")
	if err != nil {
		return nil, nil, err
	}
	r, err := redisx.Open(ctx, redisx.Options{Dir: dir, Log: silent()})
	if err != nil {
		return nil, nil, err
	}
	return r, func() {
		if err := r.Close(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "redis:", err)
		}
		os.RemoveAll(dir)
	}, nil
}

// overTCP opens a port on a managed Redis: a hand-made client uses one.
func overTCP(ctx context.Context, rdb redis.UniversalClient) (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	addr = l.Addr().String()
	if err := l.Close(); err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	return addr, rdb.ConfigSet(ctx, "port", port).Err()
}

// redisUse is the processor time Redis has used, in seconds, and its memory in bytes.
func redisUse(ctx context.Context, rdb redis.UniversalClient) (cpu, memory float64, err error) {
	info, err := rdb.Info(ctx, "cpu", "memory").Result()
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(info) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), ":")
		f, _ := strconv.ParseFloat(v, 64)
		switch k {
		case "used_cpu_sys", "used_cpu_user":
			cpu += f
		case "used_memory":
			memory = f
		}
	}
	return cpu, memory, nil
}

// measure runs work and reports what n events cost.
func measure(ctx context.Context, rdb redis.UniversalClient, n int, work func() error) (pipeRun, error) {
	c0, m0, err := redisUse(ctx, rdb)
	if err != nil {
		return pipeRun{}, err
	}
	own := selfCPU()
	began := time.Now()
	if err := work(); err != nil {
		return pipeRun{}, err
	}
	took := time.Since(began).Seconds()
	own = selfCPU() - own
	c1, m1, err := redisUse(ctx, rdb)
	if err != nil {
		return pipeRun{}, err
	}
	f := float64(n)
	return pipeRun{Rate: f / took, RedisCPU: (c1 - c0) / f * 1e6, OwnCPU: own / f * 1e6, Memory: (m1 - m0) / f}, nil
}

// runNaive counts n events with 64 goroutines, a pipeline each.
func runNaive(ctx context.Context, n int) (pipeRun, error) {
	r, done, err := freshRedis(ctx)
	if err != nil {
		return pipeRun{}, err
	}
	defer done()
	addr, err := overTCP(ctx, r.Commit)
	if err != nil {
		return pipeRun{}, err
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	now := time.Now().UnixMilli()
	return measure(ctx, rdb, n, func() error {
		var wg sync.WaitGroup
		errs := make(chan error, 64)
		for g := range 64 {
			wg.Go(func() {
				for i := g; i < n; i += 64 {
					x := uint32(i) * 2654435761
					e := naiveEvent{Event: "page_view", User: "user-" + strconv.Itoa(int(x>>8)%50_000), TS: now,
						Props: map[string]string{"page": "/book/" + strconv.Itoa(int(x>>24)%20)}}
					if err := naiveCount(ctx, rdb, &e); err != nil {
						errs <- err
						return
					}
				}
			})
		}
		wg.Wait()
		close(errs)
		return <-errs
	})
}

// fillJournal writes n events in records of 1,000 and returns the last sequence.
func fillJournal(ctx context.Context, dir string, n int, ids bool) (uint64, error) {
	j, err := journal.Open(ctx, journal.Options{Dir: dir, Log: silent(), Clock: clock.System{}})
	if err != nil {
		return 0, err
	}
	var b event.Builder
	var last uint64
	now := time.Now().UnixMilli()
	for i := 0; i < n; {
		b.Reset("demo", now, false, false)
		for range min(1000, n-i) {
			x := uint32(i) * 2654435761
			e := event.Event{Project: "demo", Name: "page_view", User: "user-" + strconv.Itoa(int(x>>8)%50_000), Time: now, Received: now}
			if ids {
				e.ID = fmt.Sprintf("%08x-0000-4000-8000-%012x", x, i)
			}
			e.Props.Append("page", event.String, "/book/"+strconv.Itoa(int(x>>24)%20))
			b.Add(&e)
			i++
		}
		rc, err := j.Append(ctx, journal.Chunk{Data: b.Bytes(), Events: b.Len()})
		if err != nil {
			return 0, err
		}
		last = rc.Seq
	}
	return last, j.Close(ctx)
}

// runProjector counts n events from the journal into Redis.
func runProjector(ctx context.Context, n int, ids bool) (pipeRun, error) {
	r, done, err := freshRedis(ctx)
	if err != nil {
		return pipeRun{}, err
	}
	defer done()
	dir, err := os.MkdirTemp("", "rollcall-bench")
	if err != nil {
		return pipeRun{}, err
	}
	defer os.RemoveAll(dir)
	last, err := fillJournal(ctx, filepath.Join(dir, "journal"), n, ids)
	if err != nil {
		return pipeRun{}, err
	}
	j, err := journal.Open(ctx, journal.Options{Dir: filepath.Join(dir, "journal"), Log: silent(), Clock: clock.System{}})
	if err != nil {
		return pipeRun{}, err
	}
	p, err := projection.New(projection.Options{Journal: j, Redis: r.Commit, Shards: 16, DedupDir: filepath.Join(dir, "dedup"),
		DedupWindow: 7 * 24 * time.Hour, Exclusive: true, Log: silent(), Clock: clock.System{},
		Projections: []projection.Projection{
			counters.NewProjection(counters.Options{Zone: func(string) *time.Location { return time.UTC }}),
			drops.NewProjection(drops.Options{Zone: func(string) *time.Location { return time.UTC }}),
		}})
	if err != nil {
		return pipeRun{}, err
	}
	run, err := measure(ctx, r.Commit, n, func() error {
		ctx, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		for p.Status().Offset < last || p.Status().State != projection.Running {
			if s := p.Status(); s.State == projection.Halted {
				stop()
				return fmt.Errorf("projector halted: %s", s.Reason)
			}
			time.Sleep(time.Millisecond)
		}
		stop()
		return <-ended
	})
	if err != nil {
		return run, err
	}
	if got := p.Status().Events; got != uint64(n) {
		return run, fmt.Errorf("projector counted %d events of %d", got, n)
	}
	run.Journal = float64(folderSize(filepath.Join(dir, "journal"))) / float64(n)
	return run, j.Close(ctx)
}

func folderSize(dir string) int64 {
	var n int64
	_ = filepath.Walk(dir, func(_ string, fi os.FileInfo, err error) error {
		if err == nil && fi.Mode().IsRegular() {
			n += fi.Size()
		}
		return nil
	})
	return n
}
