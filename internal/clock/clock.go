// Package clock is the one source of "now", so that tests own time.
package clock

import (
	"sync"
	"time"
)

// Clock tells the time. Now is always UTC and has no monotonic reading.
type Clock interface {
	Now() time.Time
}

// System is the machine's clock.
type System struct{}

// Now returns the current instant in UTC.
func (System) Now() time.Time { return time.Now().UTC().Round(0) }

// Manual is a clock that stands still until it is set. Safe for concurrent use.
type Manual struct {
	mu sync.Mutex
	t  time.Time
}

// NewManual returns a clock that stands at t.
func NewManual(t time.Time) *Manual { return &Manual{t: t.UTC().Round(0)} }

// Now returns the instant the clock was last set to.
func (m *Manual) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.t
}

// Set moves the clock to t.
func (m *Manual) Set(t time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.t = t.UTC().Round(0)
}

// Add moves the clock by d.
func (m *Manual) Add(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.t = m.t.Add(d)
}
