package ingest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/journal"
)

const (
	// RefusedEvery is how long the counts of requests of which nothing was taken are gathered in memory: what a kill loses of them.
	RefusedEvery = time.Second

	maxRefused = 4096 // pairs of project and minute in memory
	minuteMs   = 60_000
)

// refused gathers, by project and minute, how many events were rejected of requests of which nothing was taken, and appends them to the
// journal as chunks without events. So a flood of nonsense costs a small chunk a second, not a disk write each. Safe for concurrent use.
type refused struct {
	journal Appender
	every   time.Duration
	lost    atomic.Uint64

	mu     sync.Mutex
	cells  map[refusedIn]*cell
	timer  *time.Timer // runs while there is something to append and no flush is on
	busy   chan struct{}
	closed bool
}

type refusedIn struct {
	project string
	minute  int64
}

type cell struct {
	received int64 // unix milliseconds, the latest
	codes    map[string]int
}

func newRefused(j Appender) *refused {
	return &refused{journal: j, every: RefusedEvery, cells: map[refusedIn]*cell{}, busy: make(chan struct{}, 1)}
}

// add counts the rejections of one request.
func (r *refused) add(project string, received int64, rejected []Rejection) {
	if len(rejected) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		r.lost.Add(uint64(len(rejected)))
		return
	}
	c := r.cell(project, received, len(rejected))
	if c == nil {
		return
	}
	for i := range rejected {
		c.codes[rejected[i].Code]++
	}
	r.schedule()
}

// cell finds the place for n rejections, nil if there is no room. r.mu is held.
func (r *refused) cell(project string, received int64, n int) *cell {
	in := refusedIn{project, received / minuteMs}
	c := r.cells[in]
	if c == nil {
		if len(r.cells) >= maxRefused {
			r.lost.Add(uint64(n))
			return nil
		}
		c = &cell{codes: map[string]int{}}
		r.cells[in] = c
	}
	c.received = max(c.received, received)
	return c
}

// schedule makes sure that what is there will be appended. r.mu is held.
func (r *refused) schedule() {
	if r.timer == nil && len(r.cells) > 0 && !r.closed {
		r.timer = time.AfterFunc(r.every, func() { r.flush(context.Background()) })
	}
}

// flush appends what there is.
func (r *refused) flush(ctx context.Context) {
	select {
	case r.busy <- struct{}{}:
		defer func() { <-r.busy }()
	case <-ctx.Done(): // an earlier one hangs, and the time is over
		return
	}
	r.mu.Lock()
	cells := r.cells
	r.cells = map[refusedIn]*cell{}
	r.mu.Unlock()

	var g errgroup.Group // side by side, so that they share a record
	g.SetLimit(64)
	for in, c := range cells {
		g.Go(func() error {
			r.append(ctx, in, c)
			return nil
		})
	}
	_ = g.Wait()

	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = nil
	r.schedule()
}

// append writes one cell. If nothing was stored it is kept for the next time; whether it was is not known when the journal gave up on it, and
// then it must not be written twice.
func (r *refused) append(ctx context.Context, in refusedIn, c *cell) {
	var b event.Builder
	b.Reset(in.project, c.received, false, false)
	total := 0
	for code, n := range c.codes {
		b.Reject(code, n)
		total += n
	}
	_, err := r.journal.Append(ctx, journal.Chunk{Data: b.Bytes()})
	if err == nil {
		return
	}
	var e *apperr.Error
	if !errors.As(err, &e) || e.Code != "journal_full" && e.Code != "journal_busy" {
		r.lost.Add(uint64(total))
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		r.lost.Add(uint64(total))
		return
	}
	if to := r.cell(in.project, c.received, total); to != nil {
		for code, n := range c.codes {
			to.codes[code] += n
		}
	}
}

// close appends what there is; what comes later is lost.
func (r *refused) close(ctx context.Context) {
	r.mu.Lock()
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	r.flush(ctx)
}
