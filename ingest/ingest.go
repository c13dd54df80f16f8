// Package ingest accepts events: it turns the bytes of a request into judged events, appends them to the journal as one chunk
// and answers for each event what became of it.
//
// The forms of a body are in forms.go, an event's fields in fields.go, the reasons for a refusal in codes.go.
package ingest

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/journal"
)

// Appender makes a chunk durable; *journal.Journal is one.
type Appender interface {
	Append(context.Context, journal.Chunk) (*journal.Receipt, error)
}

// Options of an Ingest. Journal and Clock are required.
type Options struct {
	Journal Appender
	Clock   clock.Clock
	Limits  Limits
}

// Ingest accepts requests. It is safe for concurrent use.
type Ingest struct {
	journal  Appender
	clock    clock.Clock
	limits   Limits
	bodies   *bodies
	refused  *refused
	builders sync.Pool // *event.Builder
}

// New makes an Ingest.
func New(o Options) *Ingest {
	l := o.Limits.withDefaults()
	return &Ingest{
		journal: o.Journal, clock: o.Clock, limits: l, bodies: newBodies(int(l.MaxBody)), refused: newRefused(o.Journal),
		builders: sync.Pool{New: func() any { return new(event.Builder) }},
	}
}

// Close appends what is gathered of requests of which nothing was taken (RefusedEvery). It is called after the last Accept and before the
// journal closes.
func (in *Ingest) Close(ctx context.Context) { in.refused.close(ctx) }

// Unaccounted is the number of rejected events that `rollcall drops` will not know of, because the journal did not take their counts.
func (in *Ingest) Unaccounted() uint64 { return in.refused.lost.Load() }

// Form is what the events of a body look like.
type Form uint8

// The forms.
const (
	Native  Form = iota // rollcall's own: see forms.go
	Segment             // a call of the Segment HTTP API, which Request.Call names
)

// Request is one body of events.
type Request struct {
	Project         string
	LateWindow      time.Duration // 0 = DefaultLateWindow
	Body            io.Reader
	ContentEncoding string        // "", identity, gzip, x-gzip or zstd
	Form            Form          //
	Call            string        // of Segment: CallTrack, …
	Historical      bool          // an import with an admin key
	Wait            time.Duration // > 0: wait this long for the events to be applied
	DryRun          bool          // judge, answer, and store nothing
	Bot             bool          // whoever sent this is no person: its events are kept apart
	// Open takes the place of all the rest but Body and ContentEncoding when it is not nil: a request whose key may stand in its
	// body, as the member writeKey of Segment ("" = none). It returns the request that the key opens, or refuses it.
	Open func(writeKey string) (Request, error)
	// Anonymous names the user of an event that has none; nil = such an event has no user. It is called at most once.
	Anonymous func() string
	// Admit is asked once the number of events is known, before anything is stored; an error of it refuses the request. nil = no limit.
	Admit func(events int) error
	// Frequency limits how often one user may do a thing; nil = no rule.
	Frequency Frequency
}

// Frequency is the rules of how often one user may send an event of a name.
type Frequency interface {
	// Limits tells whether there is a rule for an event of this name.
	Limits(event string) bool
	// Refused returns the indices (Limited.Index) of those events that break their rule, ascending. An error refuses the request.
	Refused(context.Context, []Limited) ([]int, error)
}

// maxBuilder is the largest buffer that is kept for the next request.
const maxBuilder = 1 << 20

// Accept reads and judges all events of a request, appends those that keep the rules to the journal as one chunk, and answers when
// they are on disk. How many were rejected, and why, stands in the same chunk. If none keeps the rules, those counts are appended within
// RefusedEvery, together with others.
//
// With Wait it then waits for the projections, and Result tells whether they were in time (Applied) and how many of the events
// had been there before (Duplicates).
//
// The error is an *apperr.Error and nothing was stored: Malformed, Unsupported and TooLarge with the codes of codes.go, those of
// Request.Open, Admit and Frequency, and those of journal.Journal.Append (of which journal_unavailable alone means that the events may have been stored after all).
func (in *Ingest) Accept(ctx context.Context, r Request) (*Result, error) {
	now := in.clock.Now().UnixMilli()
	body, release, err := in.bodies.read(ctx, r.Body, r.ContentEncoding)
	defer release()
	if err != nil {
		return nil, err
	}
	if r.Open != nil {
		if r, err = r.Open(segmentKey(body)); err != nil {
			return nil, err
		}
	}
	b := in.builders.Get().(*event.Builder)
	defer func() {
		if b.Size() <= maxBuilder {
			in.builders.Put(b)
		}
	}()
	v, err := in.judge(ctx, body, &r, now, b)
	if err != nil {
		return nil, err
	}
	res := &Result{Received: v.Received, Accepted: v.Accepted, Rejected: v.Rejected, DryRun: r.DryRun, Waited: r.Wait > 0 && !r.DryRun}
	if r.Bot {
		res.Accepted, res.Bots = 0, v.Accepted
	}
	if v.Accepted == 0 || r.DryRun {
		if !r.DryRun {
			in.refused.add(r.Project, now, v.Rejected)
		}
		res.Applied = res.Waited // there is nothing to wait for
		return res, nil
	}
	for i := range v.Rejected {
		b.Reject(v.Rejected[i].Code, 1)
	}
	receipt, err := in.journal.Append(ctx, journal.Chunk{Data: b.Bytes(), Events: b.Len(), Notify: res.Waited})
	if err != nil {
		return nil, err
	}
	if res.Waited {
		res.await(ctx, receipt, r.Wait)
	}
	return res, nil
}

// judge judges a body, twice if a frequency rule refuses some of its events: which ones is known only when all have been read.
func (in *Ingest) judge(ctx context.Context, body []byte, r *Request, now int64, b *event.Builder) (Verdict, error) {
	rules := Rules{Now: now, LateWindow: r.LateWindow, Historical: r.Historical, Limits: in.limits, Anonymous: r.Anonymous}
	if r.Frequency != nil && !r.DryRun {
		rules.Limited = r.Frequency.Limits
	}
	once := func() (Verdict, error) {
		b.Reset(r.Project, now, r.Historical, r.Wait > 0)
		if r.Bot {
			b.MarkBot()
		}
		if r.Form == Segment {
			return JudgeSegment(body, r.Call, rules, b)
		}
		return Judge(body, rules, b)
	}
	v, err := once()
	if err != nil {
		return v, err
	}
	if r.Admit != nil {
		if err := r.Admit(v.Received); err != nil {
			return v, err
		}
	}
	if len(v.Limited) == 0 {
		return v, nil
	}
	if rules.Refused, err = r.Frequency.Refused(ctx, v.Limited); err != nil || len(rules.Refused) == 0 {
		return v, err
	}
	return once()
}

// await waits for the projections. That they are late, or that ctx ends, is no error: the events are safe.
func (r *Result) await(ctx context.Context, receipt *journal.Receipt, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	notice, err := receipt.Applied(ctx)
	if err != nil {
		return
	}
	r.Applied = true
	r.Duplicates = min(len(notice.Duplicates), r.Accepted+r.Bots)
	if r.Bots > 0 {
		r.Bots -= r.Duplicates
	} else {
		r.Accepted -= r.Duplicates
	}
}
