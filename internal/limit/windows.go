package limit

import (
	"context"
	"crypto/sha256"
	_ "embed" // sliding.lua
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/ident"
	"github.com/rollcall/rollcall/internal/redisx"
)

// The highest limits of a sliding window: each call that passes is kept until it leaves the window, and a call with an id is compared with
// all of them.
const (
	MaxWindow        = 10_000
	MaxWindowWithIDs = 1_000
)

const (
	minWindow = time.Second

	// For the store to answer: a loaded server takes up to 50 µs a call, and a batch may hold thousands.
	patience     = 200 * time.Millisecond
	patienceEach = 100 * time.Microsecond // more for each call
)

var (
	//go:embed sliding.lua
	slidingSource string
	slidingScript = redis.NewScript(slidingSource)
)

var errAway = apperr.New(apperr.Unavailable, "limit_unavailable",
	"How often this was done can't be looked up just now, so it was refused. Send it again later with the same id.").After(hold)

// ValidateWindow checks a sliding window: limit is 1 to 10,000, or to 1,000 for calls with ids; per is 1 second to 31 days. An error is an
// apperr Invalid, bad_window.
func ValidateWindow(limit int, per time.Duration, withIDs bool) error {
	most := MaxWindow
	if withIDs {
		most = MaxWindowWithIDs
	}
	switch {
	case limit < 1 || limit > most:
		return apperr.New(apperr.Invalid, "bad_window", "A sliding window takes a limit of 1 to %d calls, not %d: each is kept until it leaves the window. "+
			"For a higher rate choose a shorter window: 100000/h is 1666/m.", most, limit).Over(fmt.Sprintf("%d calls", most), "")
	case per < minWindow || per > maxPer:
		return apperr.New(apperr.Invalid, "bad_window", "A sliding window is 1s to 31d long, not %s.", clock.Duration(per)).Over("31d", "")
	}
	return nil
}

// WindowOptions says where the windows are.
type WindowOptions struct {
	// Redis must repeat nothing by itself, or a call may count twice, and heed the context's deadline (redisx's Commit does both).
	Redis  redis.UniversalClient
	Shards int // of the keys, 1 to 256
	Clock  clock.Clock
}

// Windows is the tier in Redis: exact sliding windows that all nodes share. At any instant at most Limit of the calls of the last Per
// have passed, as exactly as the nodes' clocks agree. Safe for concurrent use.
type Windows struct {
	o        WindowOptions
	patience time.Duration // tests change it
	circuit  circuit
}

// NewWindows returns the windows; it does not connect.
func NewWindows(o WindowOptions) *Windows { return &Windows{o: o, patience: patience} }

// Call asks for one call.
type Call struct {
	Project string
	Kind    string   // "sync", "freq"
	Name    []string // whose window it is; any strings without meaning here
	// ID is the event id, "" = none. A call with the id of one that passed, and that is still in the window, passes and consumes nothing,
	// so that a retry is no second event.
	ID    string
	Limit int           // 1 to MaxWindow; with an ID, to MaxWindowWithIDs
	Per   time.Duration // 1 s to 31 days; cut to milliseconds
}

// Take asks for all calls in one round trip of at most 200 ms, and 0.1 ms more for each call. Each has its own answer, in the order of calls; one that is refused does
// not keep another from passing.
//
// An error means that nothing is known, and calls may have passed: an apperr Unavailable, limit_unavailable, when the store can't be
// asked; bad_window or bad_project for a call that breaks the rules, before anything is asked; ctx's own error when it ended first. After
// a store that did not answer, every call fails at once for a second.
func (w *Windows) Take(ctx context.Context, calls []Call) ([]State, error) {
	if len(calls) == 0 {
		return nil, nil
	}
	now := w.o.Clock.Now()
	asks := make([]ask, len(calls))
	for i := range calls {
		c := &calls[i]
		if err := ident.Project(c.Project); err != nil {
			return nil, err
		}
		if err := ValidateWindow(c.Limit, c.Per, c.ID != ""); err != nil {
			return nil, err
		}
		key := windowKey(w.o.Shards, c)
		asks[i] = ask{key: [1]string{key}, args: [4]any{now.UnixMilli(), c.Per.Milliseconds(), c.Limit, idWord(key, c.ID)}}
	}
	p, err := w.circuit.enter(now)
	if err != nil {
		return nil, errAway.With(err)
	}
	var answered bool
	var failure error
	defer func() { w.circuit.leave(p, w.o.Clock.Now(), answered, failure) }()

	limited, cancel := context.WithTimeout(ctx, w.patience+time.Duration(len(calls))*patienceEach)
	defer cancel()
	err = w.ask(limited, asks)
	switch {
	case err == nil:
		answered = true
	case !redisx.IsUnknown(err): // the store answered with an error
		answered = true
		return nil, errAway.With(err)
	case ended(ctx) != nil: // says nothing about the store
		return nil, ended(ctx)
	default:
		failure = err
		return nil, errAway.With(err)
	}

	states := make([]State, len(calls))
	for i := range states {
		if states[i], err = stateOf(asks[i].cmd, calls[i].Limit); err != nil {
			return nil, errAway.With(fmt.Errorf("%s: %w", asks[i].key[0], err))
		}
	}
	return states, nil
}

// ended is ctx.Err, and no later than the read of a connection that had ctx's deadline.
func ended(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// Away is why the store can't be asked, as far as the last calls have shown; nil when it can.
func (w *Windows) Away() error { return w.circuit.open() }

// ask is one run of the script.
type ask struct {
	key  [1]string
	args [4]any
	cmd  *redis.Cmd
}

// ask runs the script for each, and once more, with its source, where a server did not know it: after its start, or a failover.
func (w *Windows) ask(ctx context.Context, asks []ask) error {
	hash := slidingScript.Hash()
	_, err := w.o.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range asks {
			asks[i].cmd = p.EvalSha(ctx, hash, asks[i].key[:], asks[i].args[:]...)
		}
		return nil
	})
	if err == nil {
		return nil
	}
	_, err = w.o.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range asks {
			if redis.HasErrorPrefix(asks[i].cmd.Err(), "NOSCRIPT") {
				asks[i].cmd = p.Eval(ctx, slidingSource, asks[i].key[:], asks[i].args[:]...)
			}
		}
		return nil
	})
	// A store that did not answer matters more than one that answered with an error.
	var fault error
	for i := range asks {
		if err := asks[i].cmd.Err(); err != nil && (fault == nil || redisx.IsUnknown(err)) {
			fault = fmt.Errorf("%s: %w", asks[i].key[0], err)
		}
	}
	if fault == nil {
		fault = err
	}
	return fault
}

func stateOf(cmd *redis.Cmd, limit int) (State, error) {
	reply, err := cmd.Int64Slice()
	if err != nil {
		return State{}, err
	}
	if len(reply) != 4 {
		return State{}, fmt.Errorf("unexpected reply of %d words", len(reply))
	}
	used, wait, reset := int(reply[1]), time.Duration(reply[2])*time.Millisecond, time.Duration(reply[3])*time.Millisecond
	return State{OK: reply[0] != 0, Limit: limit, Remaining: max(0, limit-used), Reset: reset, RetryAfter: wait}, nil
}

// idWord is what stands for an id in a window's list: "0" for none, else 8 bytes of SHA-256 over key and id, the first of them above 127 so
// that Redis compares bytes and not numbers. A hash whose collisions can be computed would let a client pass any number of events as one;
// the key keeps a pair that was found by search from being of use under another name.
func idWord(key, id string) string {
	if id == "" {
		return "0"
	}
	b := make([]byte, 0, 512)
	b = append(b, key...)
	b = append(b, 0)
	b = append(b, id...)
	sum := sha256.Sum256(b)
	sum[0] |= 0x80
	return string(sum[:8])
}
