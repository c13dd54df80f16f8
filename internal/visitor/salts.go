package visitor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/ident"
)

const (
	storeLimit = 2 * time.Second      // for all that one call asks of the store
	pause      = time.Second          // after a failure the store is not asked again for a project
	lostPause  = 5 * time.Millisecond // before the winner's salt is looked for again

	utcDay  = 24 * time.Hour
	dayKept = 3 * utcDay     // from the day's UTC midnight to the deletion of its salt: the day and two more
	ahead   = 14 * time.Hour // how far the first zone on earth to begin a day is ahead of UTC

	dailyKeys  = "salt.daily."  // + project + "." + day
	stableKeys = "salt.stable." // + project
	saltForm   = 1              // first byte of a stored value; the 32 bytes of the salt follow
)

// ErrDay is returned by Daily for a day that has not begun anywhere on earth, or whose salt is no longer kept.
var ErrDay = errors.New("visitor: no salt for this day")

// SaltStore is what Salts needs of a key-value store. Safe for concurrent use. Keys are made of a-z, 0-9, hyphens and dots.
type SaltStore interface {
	Get(ctx context.Context, key string) (value []byte, found bool, err error)
	// Create stores a value under a key that has none. created is false if it has one.
	Create(ctx context.Context, key string, value []byte) (created bool, err error)
	// Delete removes the value and its history. Deleting a key that is absent is no error.
	Delete(ctx context.Context, key string) error
	// Keys lists the keys that begin with a prefix.
	Keys(ctx context.Context, prefix string) ([]string, error)
}

// Salts gives out the salts of anonymous ids. Each is random, made once by whoever is first, and the same for everybody on the store. What is
// cached is read without a lock or I/O. Safe for concurrent use. Memory: about 200 bytes a project.
type Salts struct {
	store    SaltStore
	clock    clock.Clock
	projects atomic.Pointer[map[string]*projectSalts] // replaced, never changed
	swept    atomic.Int64                             // UTC midnight of the day of the last sweep, unix seconds
}

type projectSalts struct {
	stable atomic.Pointer[[32]byte]
	days   atomic.Pointer[[]dailySalt] // replaced, never changed; at most five, see window

	turn    chan struct{} // held by the one who asks the store
	retryAt time.Time     // these two belong to the holder of turn
	failure error
}

type dailySalt struct {
	day   string
	until time.Time
	salt  [32]byte
}

// NewSalts returns the salts kept in store.
func NewSalts(store SaltStore, c clock.Clock) *Salts {
	s := &Salts{store: store, clock: c}
	s.projects.Store(&map[string]*projectSalts{})
	return s
}

// Daily returns the salt of a local day (2006-01-02) of a project: the day of the receipt, in the project's zone. Salts of days more than two
// before today (in UTC) are deleted, on the first call of a day and by Sweep, and refused with ErrDay even where they are still there. When
// the store can't be asked Daily fails, within two seconds at most and at once for a second after that.
func (s *Salts) Daily(ctx context.Context, project, day string) ([32]byte, error) {
	p, err := s.project(project)
	if err != nil {
		return [32]byte{}, err
	}
	if d, ok := p.daily(day); ok {
		if s.clock.Now().Before(d.until) {
			return d.salt, nil
		}
		return [32]byte{}, ErrDay
	}
	until, err := s.window(day)
	if err != nil {
		return [32]byte{}, err
	}
	cached := func() ([32]byte, bool) { d, ok := p.daily(day); return d.salt, ok }
	return s.ask(ctx, p, cached, func(ctx context.Context) ([32]byte, error) {
		salt, err := s.fetch(ctx, dailyKeys+project+"."+day)
		if err != nil {
			return salt, err
		}
		p.keep(s.clock.Now(), dailySalt{day: day, until: until, salt: salt})
		s.sweepOnce(ctx)
		return salt, nil
	})
}

// Stable returns the salt that a project keeps for ever. It fails as Daily does.
func (s *Salts) Stable(ctx context.Context, project string) ([32]byte, error) {
	p, err := s.project(project)
	if err != nil {
		return [32]byte{}, err
	}
	if salt := p.stable.Load(); salt != nil {
		return *salt, nil
	}
	cached := func() ([32]byte, bool) {
		if salt := p.stable.Load(); salt != nil {
			return *salt, true
		}
		return [32]byte{}, false
	}
	return s.ask(ctx, p, cached, func(ctx context.Context) ([32]byte, error) {
		salt, err := s.fetch(ctx, stableKeys+project)
		if err == nil {
			p.stable.Store(&salt)
		}
		return salt, err
	})
}

// window checks that a day has begun somewhere and that its salt is kept, and returns until when.
func (s *Salts) window(day string) (until time.Time, err error) {
	midnight, err := time.Parse(time.DateOnly, day)
	if err != nil {
		return until, fmt.Errorf("visitor: %q is no day like 2006-01-02", day)
	}
	now := s.clock.Now()
	until = midnight.Add(dayKept)
	if now.Before(midnight.Add(-ahead)) || !now.Before(until) {
		return until, ErrDay
	}
	return until, nil
}

// project returns the cache of a project.
func (s *Salts) project(id string) (*projectSalts, error) {
	for {
		old := s.projects.Load()
		if p, ok := (*old)[id]; ok {
			return p, nil
		}
		if err := ident.Project(id); err != nil {
			return nil, err
		}
		p := &projectSalts{turn: make(chan struct{}, 1)}
		p.days.Store(&[]dailySalt{})
		next := make(map[string]*projectSalts, len(*old)+1)
		for id, p := range *old {
			next[id] = p
		}
		next[id] = p
		if s.projects.CompareAndSwap(old, &next) {
			return p, nil
		}
	}
}

func (p *projectSalts) daily(day string) (dailySalt, bool) {
	for _, d := range *p.days.Load() {
		if d.day == day {
			return d, true
		}
	}
	return dailySalt{}, false
}

// keep adds salts and forgets those whose time is over.
func (p *projectSalts) keep(now time.Time, add ...dailySalt) {
	for {
		old := p.days.Load()
		next := append(slices.Clone(*old), add...)
		next = slices.DeleteFunc(next, func(d dailySalt) bool { return !now.Before(d.until) })
		if p.days.CompareAndSwap(old, &next) {
			return
		}
	}
}

// ask lets one call at a time of a project ask the store, the others wait and find its answer. It does so under a deadline of its own: a
// client that goes away must not turn into a failure for the rest.
func (s *Salts) ask(ctx context.Context, p *projectSalts, cached func() ([32]byte, bool),
	fetch func(context.Context) ([32]byte, error),
) (salt [32]byte, err error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return salt, ctx.Err()
	}
	if salt, ok := cached(); ok {
		return salt, nil
	}
	if s.clock.Now().Before(p.retryAt) {
		return salt, p.failure
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeLimit)
	defer cancel()
	salt, err = fetch(ctx)
	if err != nil {
		p.failure, p.retryAt = err, s.clock.Now().Add(pause)
	}
	return salt, err
}

// fetch returns the salt under a key, and makes it if there is none. Two that do so at once get the same: the loser of Create reads again
// until it sees the winner's, which a lagging replica may not have at once.
func (s *Salts) fetch(ctx context.Context, key string) (salt [32]byte, err error) {
	rand.Read(salt[:]) // never fails
	mine := append([]byte{saltForm}, salt[:]...)
	for {
		value, found, err := s.store.Get(ctx, key)
		if err != nil {
			return [32]byte{}, fmt.Errorf("visitor: read %s: %w", key, err)
		}
		if found {
			if len(value) != len(mine) || value[0] != saltForm {
				return [32]byte{}, fmt.Errorf("visitor: %s is damaged: %d bytes are no salt", key, len(value))
			}
			return [32]byte(value[1:]), nil
		}
		created, err := s.store.Create(ctx, key, mine)
		if err != nil {
			return [32]byte{}, fmt.Errorf("visitor: create %s: %w", key, err)
		}
		if created {
			return salt, nil
		}
		select {
		case <-time.After(lostPause):
		case <-ctx.Done():
			return [32]byte{}, fmt.Errorf("visitor: read %s, which exists: %w", key, ctx.Err())
		}
	}
}

// Sweep deletes the daily salts of all projects that are no longer kept, and forgets them. Daily does the same on its first look at the store
// on each day; Sweep is for the days on which nobody comes. Call it about once an hour.
func (s *Salts) Sweep(ctx context.Context) error {
	now := s.clock.Now()
	for _, p := range *s.projects.Load() {
		p.keep(now)
	}
	keys, err := s.store.Keys(ctx, "salt.")
	if err != nil {
		return fmt.Errorf("visitor: list salts: %w", err)
	}
	var faults []error
	for _, key := range keys {
		if !expired(key, now) {
			continue
		}
		if err := s.store.Delete(ctx, key); err != nil {
			faults = append(faults, fmt.Errorf("visitor: delete %s: %w", key, err))
		}
	}
	return errors.Join(faults...)
}

// expired reports whether a key is a daily salt's and its time is over.
func expired(key string, now time.Time) bool {
	name, ok := strings.CutPrefix(key, dailyKeys)
	if !ok {
		return false
	}
	midnight, err := time.Parse(time.DateOnly, name[strings.LastIndexByte(name, '.')+1:])
	return err == nil && !now.Before(midnight.Add(dayKept))
}

// sweepOnce sweeps if nobody has done so today. A fault doesn't harm the one who came for a salt; the next who comes tries again.
func (s *Salts) sweepOnce(ctx context.Context) {
	today := s.clock.Now().Truncate(utcDay).Unix()
	before := s.swept.Load()
	if before == today || !s.swept.CompareAndSwap(before, today) {
		return
	}
	if s.Sweep(ctx) != nil {
		s.swept.Store(before)
	}
}
