package visitor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/clock"
)

// memory is a store in memory that counts what it is asked, and fails or waits on demand.
type memory struct {
	mu      sync.Mutex
	values  map[string][]byte
	fault   error
	hidden  int           // so many Gets don't see a value yet, as on a lagging replica
	entered chan struct{} // if set, each Get tells it and waits until the test or its deadline lets it go on
	goOn    chan struct{}

	asked, created atomic.Int64
}

func newMemory() *memory { return &memory{values: map[string][]byte{}} }

func (m *memory) Get(ctx context.Context, key string) ([]byte, bool, error) {
	m.asked.Add(1)
	if m.entered != nil {
		m.entered <- struct{}{}
		select {
		case <-m.goOn:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	value, found := m.values[key]
	if m.hidden > 0 {
		m.hidden--
		return nil, false, m.fault
	}
	return slices.Clone(value), found, m.fault
}

func (m *memory) Create(_ context.Context, key string, value []byte) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault != nil {
		return false, m.fault
	}
	if _, found := m.values[key]; found {
		return false, nil
	}
	m.values[key] = slices.Clone(value)
	m.created.Add(1)
	return true, nil
}

func (m *memory) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault == nil {
		delete(m.values, key)
	}
	return m.fault
}

func (m *memory) Keys(context.Context, string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.values)), m.fault
}

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = err
}

func (m *memory) keys() string {
	all, _ := m.Keys(context.Background(), "")
	return strings.Join(all, " ")
}

func newSalts(at string) (*Salts, *memory, *clock.Manual) {
	now, err := time.Parse(time.RFC3339, at)
	if err != nil {
		panic(err)
	}
	m, c := newMemory(), clock.NewManual(now)
	return NewSalts(m, c), m, c
}

func daily(t *testing.T, s *Salts, project, day string) [32]byte {
	t.Helper()
	salt, err := s.Daily(context.Background(), project, day)
	if err != nil {
		t.Fatalf("Daily(%s, %s) = %v", project, day, err)
	}
	return salt
}

func stable(t *testing.T, s *Salts, project string) [32]byte {
	t.Helper()
	salt, err := s.Stable(context.Background(), project)
	if err != nil {
		t.Fatalf("Stable(%s) = %v", project, err)
	}
	return salt
}

func TestSaltsDiffer(t *testing.T) {
	s, m, _ := newSalts("2026-11-30T12:00:00Z")
	salts := [][32]byte{
		daily(t, s, "a", "2026-11-30"), daily(t, s, "a", "2026-11-29"), daily(t, s, "b", "2026-11-30"), stable(t, s, "a"), stable(t, s, "b"), {},
	}
	for i, x := range salts {
		if slices.Contains(salts[:i], x) {
			t.Errorf("salt %d is like one before", i)
		}
	}
	asked := m.asked.Load()
	again := [][32]byte{
		daily(t, s, "a", "2026-11-30"), daily(t, s, "a", "2026-11-29"), daily(t, s, "b", "2026-11-30"), stable(t, s, "a"), stable(t, s, "b"), {},
	}
	if !slices.Equal(salts, again) {
		t.Error("a salt changed")
	}
	if m.asked.Load() != asked {
		t.Error("a cached salt was read from the store")
	}
	other := NewSalts(m, clock.NewManual(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)))
	if daily(t, other, "a", "2026-11-30") != salts[0] || stable(t, other, "a") != salts[3] {
		t.Error("another node has other salts")
	}
}

// Many nodes, each with many requests, on the first events of a day: one salt, made once.
func TestSaltsRace(t *testing.T) {
	_, m, c := newSalts("2026-11-30T12:00:00Z")
	var mu sync.Mutex
	days, stables := map[[32]byte]int{}, map[[32]byte]int{}
	var wg sync.WaitGroup
	for range 8 {
		s := NewSalts(m, c)
		for range 8 {
			wg.Go(func() {
				d, err1 := s.Daily(context.Background(), "demo", "2026-11-30")
				st, err2 := s.Stable(context.Background(), "demo")
				if err1 != nil || err2 != nil {
					t.Errorf("%v, %v", err1, err2)
				}
				mu.Lock()
				defer mu.Unlock()
				days[d]++
				stables[st]++
			})
		}
	}
	wg.Wait()
	if len(days) != 1 || len(stables) != 1 || m.created.Load() != 2 {
		t.Errorf("%d daily and %d stable salts, %d made, want 1, 1 and 2", len(days), len(stables), m.created.Load())
	}
	if n := m.asked.Load(); n > 8*2*3 {
		t.Errorf("the store was asked %d times for 8 nodes", n)
	}
}

// The loser of Create takes the winner's salt, even from a replica that lags.
func TestSaltsLoser(t *testing.T) {
	s, m, c := newSalts("2026-11-30T12:00:00Z")
	want := stable(t, NewSalts(m, c), "demo")
	m.hidden = 3
	if stable(t, s, "demo") != want {
		t.Error("the loser has another salt")
	}
	if m.created.Load() != 1 || m.hidden != 0 {
		t.Errorf("%d made, %d not asked", m.created.Load(), m.hidden)
	}
}

func TestDailyWindow(t *testing.T) {
	s, m, _ := newSalts("2026-11-30T09:59:59Z")
	f := func(day string, want error) {
		t.Helper()
		if _, err := s.Daily(context.Background(), "demo", day); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", day, err, want)
		}
	}
	f("2026-11-27", ErrDay)
	f("2026-11-28", nil)
	f("2026-11-30", nil)
	f("2026-12-01", ErrDay) // begins at 10:00 UTC in the zone that is furthest ahead
	for _, bad := range []string{"", "2026-11", "2026-11-31", "2026-11-3", "20261130", "2026-11-30T00:00:00Z", "today", "2026-11-30 ", "+2026-11-30"} {
		if _, err := s.Daily(context.Background(), "demo", bad); err == nil || errors.Is(err, ErrDay) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, bad := range []string{"", "a.b", "A", "salt.stable"} {
		if _, err := s.Daily(context.Background(), bad, "2026-11-30"); err == nil {
			t.Errorf("project %q has a salt", bad)
		}
		if _, err := s.Stable(context.Background(), bad); err == nil {
			t.Errorf("project %q has a salt", bad)
		}
	}
	if got, want := m.keys(), "salt.daily.demo.2026-11-28 salt.daily.demo.2026-11-30"; got != want {
		t.Errorf("stored %s, want %s", got, want)
	}
	s, _, _ = newSalts("2026-11-30T10:00:00Z")
	f("2026-12-01", nil)
}

// Nobody can link the days: the salt of a day is gone from the store and from memory after two more, and is never made again.
func TestDailyIsForgotten(t *testing.T) {
	s, m, c := newSalts("2026-11-28T12:00:00Z")
	daily(t, s, "demo", "2026-11-28")
	daily(t, s, "quiet", "2026-11-28")
	stable(t, s, "demo")
	m.values["other.daily.demo.2020-01-01"] = nil

	c.Set(time.Date(2026, 11, 30, 23, 59, 59, 0, time.UTC))
	daily(t, s, "demo", "2026-11-30")
	if got, want := m.keys(), "other.daily.demo.2020-01-01 salt.daily.demo.2026-11-28 salt.daily.demo.2026-11-30 salt.daily.quiet.2026-11-28 salt.stable.demo"; got != want {
		t.Errorf("stored %s, want %s", got, want)
	}

	c.Set(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC))
	if _, err := s.Daily(context.Background(), "demo", "2026-11-28"); !errors.Is(err, ErrDay) {
		t.Errorf("a cached salt outlived its day: %v", err)
	}
	daily(t, s, "demo", "2026-12-01")
	if got, want := m.keys(), "other.daily.demo.2020-01-01 salt.daily.demo.2026-11-30 salt.daily.demo.2026-12-01 salt.stable.demo"; got != want {
		t.Errorf("stored %s, want %s", got, want)
	}
	for id, p := range *s.projects.Load() {
		if _, ok := p.daily("2026-11-28"); ok {
			t.Errorf("%s still has the salt in memory", id)
		}
	}

	c.Set(time.Date(2026, 12, 9, 0, 0, 0, 0, time.UTC)) // days on which nobody came
	if err := s.Sweep(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got, want := m.keys(), "other.daily.demo.2020-01-01 salt.stable.demo"; got != want {
		t.Errorf("stored %s, want %s", got, want)
	}
}

// A sweep that fails costs nobody a salt, and is made up for.
func TestSweepFault(t *testing.T) {
	s, m, c := newSalts("2026-11-28T12:00:00Z")
	daily(t, s, "demo", "2026-11-28")
	c.Set(time.Date(2026, 12, 5, 12, 0, 0, 0, time.UTC))
	down := errors.New("store is down")
	m.fail(down)
	if err := s.Sweep(context.Background()); !errors.Is(err, down) {
		t.Errorf("Sweep = %v", err)
	}
	m.fail(nil)
	daily(t, s, "demo", "2026-12-05")
	if got, want := m.keys(), "salt.daily.demo.2026-12-05"; got != want {
		t.Errorf("stored %s, want %s", got, want)
	}
}

// A store that is down fails the call, is asked once a second, and harms nothing that is cached.
func TestSaltsStoreDown(t *testing.T) {
	s, m, c := newSalts("2026-11-30T12:00:00Z")
	cached := daily(t, s, "demo", "2026-11-30")
	down := errors.New("store is down")
	m.fail(down)
	asked := m.asked.Load()
	for range 10 {
		if salt, err := s.Stable(context.Background(), "demo"); !errors.Is(err, down) || salt != [32]byte{} {
			t.Fatalf("Stable = %x, %v", salt, err)
		}
	}
	if n := m.asked.Load() - asked; n != 1 {
		t.Errorf("asked %d times, want 1", n)
	}
	if daily(t, s, "demo", "2026-11-30") != cached {
		t.Error("the cached salt changed")
	}
	m.fail(nil)
	c.Add(time.Second)
	stable(t, s, "demo")
}

// A damaged value is an error, never a salt, and stays as it is.
func TestSaltsDamaged(t *testing.T) {
	for _, bad := range [][]byte{nil, {}, {1}, make([]byte, 32), make([]byte, 33), append([]byte{1}, make([]byte, 33)...)} {
		s, m, _ := newSalts("2026-11-30T12:00:00Z")
		m.values["salt.stable.demo"] = bad
		if salt, err := s.Stable(context.Background(), "demo"); err == nil || salt != [32]byte{} {
			t.Errorf("%x gave %x, %v", bad, salt, err)
		}
		if got := m.values["salt.stable.demo"]; !slices.Equal(got, bad) {
			t.Errorf("%x was overwritten by %x", bad, got)
		}
	}
}

// A client that goes away while it waits is let go; one that goes away while it asks doesn't spoil the answer for the rest.
func TestSaltsClientGone(t *testing.T) {
	s, m, _ := newSalts("2026-11-30T12:00:00Z")
	m.entered, m.goOn = make(chan struct{}), make(chan struct{})
	ctx, gone := context.WithCancel(context.Background())
	asker := make(chan error, 1)
	go func() {
		_, err := s.Stable(ctx, "demo")
		asker <- err
	}()
	<-m.entered
	gone()
	if _, err := s.Stable(ctx, "demo"); !errors.Is(err, context.Canceled) {
		t.Errorf("the one that waits: %v", err)
	}
	close(m.goOn)
	if err := <-asker; err != nil {
		t.Errorf("the one that asks: %v", err)
	}
	if n := m.asked.Load(); n != 1 {
		t.Errorf("asked %d times, want 1", n)
	}
	stable(t, s, "demo")
}
