package memo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/projection"
)

var now = time.Date(2026, 12, 7, 12, 0, 0, 0, time.UTC)

// source makes answers and counts them.
type source struct {
	made   atomic.Int64
	weight int
	final  bool
}

func (s *source) ask(context.Context) (Answer, error) {
	return Answer{Value: s.made.Add(1), Weight: s.weight, Final: s.final}, nil
}

func ask(t *testing.T, m *Memo, q Question, s *source) int64 {
	t.Helper()
	v, err := m.Do(t.Context(), q, time.Second, s.ask)
	if err != nil {
		t.Fatal(err)
	}
	return v.(int64)
}

func past(key string) Question { return Question{"demo", key, now.Add(-time.Hour)} }

func late(project string, at time.Time) []projection.Record {
	return []projection.Record{{Events: []event.Event{{Project: project, Time: at.UnixMilli()}}}}
}

func TestOnlyThePastIsKept(t *testing.T) {
	m := New(clock.NewManual(now))
	for _, c := range []struct {
		what  string
		q     Question
		final bool
		want  int64
	}{
		{"past", past("a"), true, 1}, {"not all counted yet", past("b"), false, 2}, {"today", Question{"demo", "c", now.Add(time.Hour)}, true, 2},
	} {
		s := &source{final: c.final}
		ask(t, m, c.q, s)
		if got := ask(t, m, c.q, s); got != c.want {
			t.Errorf("%s: the second answer was made as number %d, want %d", c.what, got, c.want)
		}
	}
}

func TestLateEventsEndAnswers(t *testing.T) {
	m := New(clock.NewManual(now))
	s := &source{final: true}
	ask(t, m, past("a"), s)
	m.Committed(late("demo", now)) // live: nothing kept is about it
	m.Committed(late("other", now.Add(-2*time.Hour)))
	if n := ask(t, m, past("a"), s); n != 1 {
		t.Errorf("answer %d after events that do not matter, want 1", n)
	}
	m.Committed(late("demo", now.Add(-2*time.Hour)))
	if n := ask(t, m, past("a"), s); n != 2 {
		t.Errorf("answer %d after a late event, want 2", n)
	}
}

// An answer that was read before a late event came, and is ready only after it, must not be kept.
func TestAnAnswerIsNotKeptOverALateEvent(t *testing.T) {
	m := New(clock.NewManual(now))
	s := &source{final: true}
	_, err := m.Do(t.Context(), past("a"), time.Second, func(ctx context.Context) (Answer, error) {
		m.Committed(late("demo", now.Add(-2*time.Hour)))
		return s.ask(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := ask(t, m, past("a"), s); n != 2 {
		t.Errorf("answer %d, want a new one", n)
	}
}

func TestAnswersEndByTheirTime(t *testing.T) {
	c := clock.NewManual(now)
	m := New(c)
	s := &source{final: true}
	ask(t, m, past("a"), s)
	c.Add(keepFor - jitter - time.Second)
	if n := ask(t, m, past("a"), s); n != 1 {
		t.Errorf("answer %d before any jitter, want 1", n)
	}
	c.Add(jitter + time.Second)
	if n := ask(t, m, past("a"), s); n != 2 {
		t.Errorf("answer %d after the whole time, want 2", n)
	}
}

func TestOneReadingForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(clock.NewManual(now))
		gate := make(chan struct{})
		s := &source{final: true}
		slow := func(ctx context.Context) (Answer, error) {
			<-gate
			return s.ask(ctx)
		}
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				if v, err := m.Do(t.Context(), past("a"), time.Minute, slow); err != nil || v.(int64) != 1 {
					t.Errorf("%v, %v", v, err)
				}
			})
		}
		gone, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			if _, err := m.Do(gone, past("a"), time.Minute, slow); !errors.Is(err, context.Canceled) {
				t.Errorf("who went away got %v", err)
			}
		})
		synctest.Wait()
		cancel() // who goes away ends nobody else's question
		synctest.Wait()
		close(gate)
		wg.Wait()
		if n := s.made.Load(); n != 1 {
			t.Errorf("%d readings, want 1", n)
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	m := New(clock.NewManual(now))
	s := &source{final: true, weight: 100}
	for i := range 3 * maxCount {
		ask(t, m, past(fmt.Sprint(i)), s)
		if m.weight > maxWeight || m.answers.Len() > maxCount {
			t.Fatalf("weight %d, %d answers", m.weight, m.answers.Len())
		}
	}
	sum := 0
	for _, a := range m.answers.Values() {
		sum += a.weight
	}
	if sum != m.weight {
		t.Errorf("weight %d, the answers have %d", m.weight, sum)
	}
	huge := &source{final: true, weight: maxLone + 1}
	ask(t, m, past("huge"), huge)
	if n := ask(t, m, past("huge"), huge); n != 2 {
		t.Error("a huge answer was kept")
	}
	for i := range 3 * maxStale {
		m.Committed(late(fmt.Sprint("p", i), now.Add(-2*time.Hour)))
	}
	if len(m.changed) > maxStale {
		t.Errorf("%d projects are remembered", len(m.changed))
	}
}
