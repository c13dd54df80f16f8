package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/rollcall/rollcall/internal/obs"
)

// progress shows how far an import is: a bar on a terminal, elsewhere a line every few seconds.
type progress struct {
	w      io.Writer
	bar    *progressbar.ProgressBar // nil when nobody is looking
	total  int64                    // bytes of the file
	bytes  func() int64             // read so far
	events func() int64             // read so far
	began  time.Time
	mu     sync.Mutex // one writer at a time
	end    chan struct{}
	done   sync.WaitGroup
}

const (
	barEvery  = 200 * time.Millisecond
	lineEvery = 5 * time.Second
)

// newProgress starts showing. Stop it.
func newProgress(w io.Writer, total int64, bytes, events func() int64) *progress {
	p := &progress{w: w, total: total, bytes: bytes, events: events, began: time.Now(), end: make(chan struct{})}
	every := lineEvery
	if obs.IsTerminal(w) {
		every = barEvery
		p.bar = progressbar.NewOptions64(max(total, 1),
			progressbar.OptionSetWriter(w),
			progressbar.OptionSetWidth(30),
			progressbar.OptionShowBytes(true),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionSetElapsedTime(true),
			progressbar.OptionClearOnFinish())
	}
	p.done.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.show()
			case <-p.end:
				return
			}
		}
	})
	return p
}

// stop ends the showing and takes the bar away.
func (p *progress) stop() {
	close(p.end)
	p.done.Wait()
	if p.bar != nil {
		// Drawing is not worth failing an import.
		_ = p.bar.Clear()
	}
}

func (p *progress) show() {
	p.mu.Lock()
	defer p.mu.Unlock()
	read, events, took := min(p.bytes(), p.total), p.events(), time.Since(p.began).Seconds()
	rate := float64(events) / took
	if p.bar != nil {
		p.bar.Describe(fmt.Sprintf("%d events, %.0f/s", events, rate))
		_ = p.bar.Set64(min(read, p.total-1))
		return
	}
	eta := "unknown"
	if read > 0 {
		eta = time.Duration(took / float64(read) * float64(p.total-read) * float64(time.Second)).Round(time.Second).String()
	}
	fmt.Fprintf(p.w, "%5.1f %%, %d events, %.0f/s, ETA %s\n", 100*float64(read)/float64(max(p.total, 1)), events, rate, eta)
}

// note writes a line without breaking the bar.
func (p *progress) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	fmt.Fprintf(p.w, format+"\n", args...)
}
