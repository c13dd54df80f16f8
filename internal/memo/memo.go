// Package memo keeps answers about the past in memory: many who ask the same at once cost one reading, and who asks again costs none. An
// answer is kept for a short time, of which no two are the same, and until an event comes that could change it.
package memo

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/sync/singleflight"

	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/projection"
)

const (
	keepFor   = 15 * time.Second // a node that does not project learns of late events by this
	jitter    = 5 * time.Second  // of keepFor, at random: answers that were made together do not all end together
	maxWeight = 200_000          // of all answers; a row weighs one, some 250 bytes
	maxLone   = 5_000            // of one answer
	maxCount  = 4096
	maxStale  = 10_000 // projects with a generation
)

// Memo keeps answers. Safe for concurrent use. Make it with New.
type Memo struct {
	clock   clock.Clock
	flights singleflight.Group

	mu      sync.Mutex
	answers *simplelru.LRU[string, answer]
	weight  int
	horizon int64            // no answer is about a time at or after it, unix milliseconds
	changed map[string]int64 // by project: how often its past has changed in this era
	era     int64
	hits    uint64
	misses  uint64
}

type answer struct {
	value  any
	weight int
	until  time.Time
}

// New makes a Memo.
func New(c clock.Clock) *Memo {
	m := &Memo{clock: c, changed: map[string]int64{}}
	var err error
	m.answers, err = simplelru.NewLRU(maxCount, func(_ string, a answer) { m.weight -= a.weight })
	if err != nil {
		panic(err) // only for a size below 1
	}
	return m
}

// Question is what is asked.
type Question struct {
	Project string
	Key     string    // everything that the answer hangs on, beside the project
	To      time.Time // nothing at or after it has a say in the answer
}

// Answer is what came out. Final says that everything before To was counted; only such answers are kept. Value must not be changed by
// anybody.
type Answer struct {
	Value  any
	Weight int // rows
	Final  bool
}

// Do answers from memory, or by make, of which there is one at a time for a question about the past. What is about now is always made.
// make gets a context of its own, that ends after limit: others may be waiting for it.
func (m *Memo) Do(ctx context.Context, q Question, limit time.Duration, ask func(context.Context) (Answer, error)) (any, error) {
	now := m.clock.Now()
	if q.To.After(now) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		a, err := ask(ctx)
		return a.Value, err
	}
	key, value, ok := m.look(q, now)
	m.count(ok)
	if ok {
		return value, nil
	}
	flight := m.flights.DoChan(key, func() (any, error) {
		if _, value, ok := m.look(q, now); ok { // one that ended just now
			return value, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
		a, err := ask(ctx)
		if err == nil && a.Final {
			m.keep(key, q, a)
		}
		return a.Value, err
	})
	select {
	case r := <-flight:
		return r.Val, r.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// look finds an answer. The key has the project's generation in it, so what was asked before a change is not found after it.
func (m *Memo) look(q Question, now time.Time) (key string, value any, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key = q.Project + "\x00" + strconv.FormatInt(m.era, 10) + "." + strconv.FormatInt(m.changed[q.Project], 10) + "\x00" + q.Key
	a, ok := m.answers.Get(key)
	if ok && now.Before(a.until) {
		return key, a.value, true
	}
	m.horizon = max(m.horizon, q.To.UnixMilli()) // before it is read: an event that comes meanwhile ends it
	return key, nil, false
}

func (m *Memo) count(hit bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if hit {
		m.hits++
	} else {
		m.misses++
	}
}

func (m *Memo) keep(key string, q Question, a Answer) {
	if a.Weight > maxLone {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers.Remove(key)
	m.answers.Add(key, answer{a.Value, a.Weight + 1, m.clock.Now().Add(keepFor - rand.N(jitter))})
	m.weight += a.Weight + 1
	for m.weight > maxWeight {
		m.answers.RemoveOldest()
	}
}

// Committed ends the answers that the events of these records change. It is called when they are in and before anybody is told so.
func (m *Memo) Committed(records []projection.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := ""
	for i := range records {
		for j := range records[i].Events {
			e := &records[i].Events[j]
			if e.Time >= m.horizon || e.Project == last {
				continue
			}
			last = e.Project
			if len(m.changed) >= maxStale && m.changed[last] == 0 {
				m.era++
				clear(m.changed)
			}
			m.changed[string([]byte(last))]++
		}
	}
}

// Stats is how many questions about the past were answered from memory, and how many were not.
func (m *Memo) Stats() (hits, misses uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hits, m.misses
}
