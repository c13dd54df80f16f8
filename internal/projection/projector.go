package projection

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/journal"
	"github.com/rollcall/rollcall/internal/projection/dedup"
)

// LockTTL is how long a projector that vanished keeps the others waiting.
const LockTTL = 6 * time.Second

const (
	idleTick     = 200 * time.Millisecond
	flushEvery   = time.Second      // the dedup store
	advanceEvery = 5 * time.Second  // shards that no batch touched are moved up this often under load; at once when idle
	trimEvery    = 30 * time.Second // the journal is asked to drop what everybody has passed
	haltEvery    = 30 * time.Second // a halted projector looks whether it has been helped
	asofMargin   = time.Second      // what was received this long ago has reached the journal
)

// Options of a Projector. Those without a default must be set.
type Options struct {
	Journal     *journal.Journal
	Redis       redis.UniversalClient // must not retry by itself (MaxRetries -1)
	Shards      int
	Projections []Projection
	DedupDir    string
	DedupWindow time.Duration
	Check       func(context.Context) error // whether Redis may be used; asked at the begin of each epoch. May be nil
	Exclusive   bool                        // no other projector can exist (the journal is held by this process): the lock is taken over at once
	BatchEvents int                         // most events in one commit; 0 = 50,000
	Linger      time.Duration               // how long a batch waits for more events; 0 = 15 ms. A caller who waits for an answer cuts it short
	Committed   func([]Record)              // called with the records of a batch that is in, before callers who wait are told. May be nil
	Log         *slog.Logger
	Clock       clock.Clock
}

// State is what a projector is doing.
type State string

// The states. Only Running means that new events become visible.
const (
	Starting State = "starting"
	Standby  State = "standby"  // another projector holds the lock
	Running  State = "running"  // reading and committing
	Retrying State = "retrying" // Redis or the journal is away; nothing is lost
	Halted   State = "halted"   // going on could lose or double events; Reason says what to do
	Stopped  State = "stopped"
)

// Status is a snapshot for readiness and metrics.
type Status struct {
	State  State
	Reason string    // of Retrying and Halted
	Offset uint64    // every projection has committed the journal up to here
	AsOf   time.Time // everything received before it is visible
	Events uint64    // events committed by this process
	Dups   uint64    // duplicates dropped by this process
	Epochs uint64    // epochs begun by this process: grows with each fault
}

// Projector reads the journal and commits it to Redis. Run it once.
type Projector struct {
	o     Options
	dedup *dedup.Store

	state  atomic.Pointer[Status] // State and Reason only
	offset atomic.Uint64
	asof   atomic.Int64
	events atomic.Uint64
	dups   atomic.Uint64
	epochs atomic.Uint64
}

// New checks the options.
func New(o Options) (*Projector, error) {
	if o.Journal == nil || o.Redis == nil || len(o.Projections) == 0 || o.Log == nil || o.Clock == nil || o.DedupDir == "" {
		return nil, errors.New("projection: an option is missing")
	}
	if o.Shards < 1 || o.Shards > 256 {
		return nil, fmt.Errorf("projection: %d shards: must be 1 to 256", o.Shards)
	}
	if o.DedupWindow < time.Hour {
		return nil, fmt.Errorf("projection: dedup window %s: must be at least 1h", o.DedupWindow)
	}
	if o.BatchEvents == 0 {
		o.BatchEvents = 50_000
	}
	if o.Linger == 0 {
		o.Linger = 15 * time.Millisecond
	}
	p := &Projector{o: o}
	p.say(Starting, "")
	return p, nil
}

// Status returns a snapshot. Safe for concurrent use.
func (p *Projector) Status() Status {
	s := *p.state.Load()
	s.Offset, s.Events, s.Dups, s.Epochs = p.offset.Load(), p.events.Load(), p.dups.Load(), p.epochs.Load()
	if ms := p.asof.Load(); ms != 0 {
		s.AsOf = time.UnixMilli(ms).UTC()
	}
	return s
}

func (p *Projector) say(s State, reason string) { p.state.Store(&Status{State: s, Reason: reason}) }

// Run carries the journal into Redis until ctx ends. A batch that is not in by then is read again at the next start. Faults never end
// it: it waits and goes on from the offsets that Redis really holds.
func (p *Projector) Run(ctx context.Context) error {
	defer p.say(Stopped, "")
	wait := newBackoff()
	for ctx.Err() == nil {
		began := time.Now()
		err := p.openDedup()
		switch {
		case err == nil:
			err = p.epoch(ctx)
		case !errors.Is(err, dedup.ErrNoRoom):
			return err
		}
		if ctx.Err() != nil {
			break
		}
		var h *haltError
		switch {
		case errors.As(err, &h):
			if s := p.Status(); s.State != Halted || s.Reason != h.reason {
				p.o.Log.Error("projector halted", "reason", h.reason)
			}
			p.say(Halted, h.reason)
			sleep(ctx, haltEvery)
			continue
		case errors.Is(err, errDedup) && !errors.Is(err, dedup.ErrNoRoom):
			// Everything in the store follows from the journal: make it anew.
			p.o.Log.Error("the dedup store is damaged and is made anew from the journal", "err", err)
			if err := p.dropDedup(); err != nil {
				return err
			}
		}
		p.say(Retrying, err.Error())
		p.o.Log.Warn("projector starts again from the offsets in Redis", "err", err)
		if time.Since(began) > 10*time.Second {
			wait = newBackoff()
		}
		sleep(ctx, wait.next())
	}
	if p.dedup != nil {
		return p.dedup.Close()
	}
	return nil
}

var errDedup = errors.New("dedup store")

func (p *Projector) openDedup() (err error) {
	if p.dedup != nil {
		return nil
	}
	p.dedup, err = dedup.Open(dedup.Options{Dir: p.o.DedupDir, Identity: p.o.Journal.Identity(), Window: p.o.DedupWindow})
	return err
}

func (p *Projector) dropDedup() error {
	// The fault that brought us here comes up again at Close; the folder goes either way.
	if err := p.dedup.Close(); err != nil {
		p.o.Log.Warn("closing the damaged dedup store", "err", err)
	}
	p.dedup = nil
	return os.RemoveAll(p.o.DedupDir)
}

// epoch is one run from the offsets in Redis to the first fault. Every cache belongs to it.
type epoch struct {
	p      *Projector
	token  string
	placed [][]place // by projection and shard: the offset after the batches handed over so far; only the folding goroutine
	last   uint64    // the last record folded
	sum    uint32    // its checksum

	reader  *journal.Reader
	commits chan *commit
	latest  *commit // the one handed over last
	moved   time.Time
	flushed time.Time
	trimmed time.Time
}

// epoch claims the shards, checks that Redis, journal and dedup store belong together, and runs the three stages.
func (p *Projector) epoch(ctx context.Context) error {
	if p.o.Check != nil {
		if err := p.o.Check(ctx); err != nil {
			return err
		}
	}
	e := &epoch{p: p, token: rand.Text(), commits: make(chan *commit)}
	release, ctx, err := p.lock(ctx, e.token)
	if err != nil {
		return err
	}
	defer release()
	p.epochs.Add(1)
	from, err := e.begin(ctx)
	if err != nil {
		return err
	}
	if e.reader, err = p.o.Journal.Read(ctx, from); err != nil {
		return journalError(err)
	}
	defer e.reader.Close()
	p.o.Log.Info("projector running", "from", from)
	p.say(Running, "")
	err = e.run(ctx)
	if errors.Is(context.Cause(ctx), errLockLost) {
		return errLockLost
	}
	return err
}

// begin claims every shard and returns the first record to read.
func (e *epoch) begin(ctx context.Context) (uint64, error) {
	p := e.p
	first, last, err := p.o.Journal.Bounds(ctx)
	if err != nil {
		return 0, fmt.Errorf("journal bounds: %w", err)
	}
	low := last
	checked := map[place]bool{}
	for _, proj := range p.o.Projections {
		begin := uint64(0)
		if first > 1 && joinsLate(proj) {
			begin = first - 1
		}
		places, err := e.claim(ctx, proj.Name(), begin)
		if err != nil {
			return 0, err
		}
		for shard, pl := range places {
			if err := e.check(ctx, MetaKey(shard, proj.Name()), pl, first, last, checked); err != nil {
				return 0, err
			}
			low = min(low, pl.Offset)
		}
		e.placed = append(e.placed, places)
		proj.Reset()
	}
	p.offset.Store(low)
	judged := p.dedup.Offset()
	if judged > last {
		return 0, halt("the dedup store has seen record %d, but the journal ends at %d: the journal has lost records", judged, last)
	}
	if judged+1 < first {
		p.o.Log.Warn("the journal no longer has all records since the dedup store was written: ids received before are new again",
			"judged", judged, "first", first)
		p.dedup.Skip(first - 1)
		judged = first - 1
	}
	e.last = min(low, judged)
	if e.last >= first {
		if e.sum, err = e.sumAt(ctx, e.last); err != nil {
			return 0, err
		}
	}
	return e.last + 1, nil
}

// check proves that a shard's offset means the same record in this journal as it did when it was written.
func (e *epoch) check(ctx context.Context, key string, pl place, first, last uint64, checked map[place]bool) error {
	switch {
	case pl.Offset > last:
		return halt("%s is at record %d, but the journal ends at %d: the journal has lost records", key, pl.Offset, last)
	case pl.Offset+1 < first:
		return halt("%s is at record %d, but the journal begins at %d: what lies between can't be counted from here; rebuild the projection",
			key, pl.Offset, first)
	case pl.Offset < first || checked[pl]:
		return nil
	}
	sum, err := e.sumAt(ctx, pl.Offset)
	if err != nil {
		return err
	}
	if fmt.Sprintf("%x", sum) != pl.Sum {
		return halt("%s was written after another record %d (checksum %s, the journal has %x): the journal was replaced", key, pl.Offset, pl.Sum, sum)
	}
	checked[pl] = true
	return nil
}

// journalError makes a stop of what waiting can't heal.
func journalError(err error) error {
	switch {
	case errors.Is(err, journal.ErrGap), errors.Is(err, journal.ErrBeforeFirst), errors.Is(err, journal.ErrBeyondEnd),
		errors.Is(err, event.ErrDamaged), errors.Is(err, event.ErrVersion):
		return halt("journal: %v. Put the journal's folder back from a copy. The counts in Redis stay as they are: do not rebuild them from a journal that has lost records",
			err)
	}
	return fmt.Errorf("journal: %w", err)
}
