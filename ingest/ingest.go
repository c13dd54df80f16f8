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

// Project is what ingest has to know of a project.
type Project struct {
	ID         string
	Zone       *time.Location // whose calendar the project's days follow; judging does not need it
	LateWindow time.Duration  // 0 = DefaultLateWindow
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
	builders sync.Pool // *event.Builder
}

// New makes an Ingest.
func New(o Options) *Ingest {
	l := o.Limits.withDefaults()
	return &Ingest{
		journal: o.Journal, clock: o.Clock, limits: l, bodies: newBodies(int(l.MaxBody)),
		builders: sync.Pool{New: func() any { return new(event.Builder) }},
	}
}

// Request is one POST of events.
type Request struct {
	Project         Project
	Body            io.Reader
	ContentEncoding string        // "", identity, gzip, x-gzip or zstd
	Historical      bool          // an import with an admin key
	Wait            time.Duration // > 0: wait this long for the events to be applied
}

// maxBuilder is the largest buffer that is kept for the next request.
const maxBuilder = 1 << 20

// Accept reads and judges all events of a request, appends those that keep the rules to the journal as one chunk, and answers when
// they are on disk. If none keeps them, nothing is appended.
//
// With Wait it then waits for the projections, and Result tells whether they were in time (Applied) and how many of the events
// had been there before (Duplicates).
//
// The error is an *apperr.Error and nothing was stored: Malformed, Unsupported and TooLarge with the codes of codes.go, and those of
// journal.Journal.Append (of which journal_unavailable alone means that the events may have been stored after all).
func (in *Ingest) Accept(ctx context.Context, r Request) (*Result, error) {
	now := in.clock.Now().UnixMilli()
	body, release, err := in.bodies.read(ctx, r.Body, r.ContentEncoding)
	defer release()
	if err != nil {
		return nil, err
	}
	b := in.builders.Get().(*event.Builder)
	defer func() {
		if b.Size() <= maxBuilder {
			in.builders.Put(b)
		}
	}()
	b.Reset(r.Project.ID, now, r.Historical, r.Wait > 0)
	v, err := Judge(body, Rules{Now: now, LateWindow: r.Project.LateWindow, Historical: r.Historical, Limits: in.limits}, b)
	if err != nil {
		return nil, err
	}
	res := &Result{Received: v.Received, Accepted: v.Accepted, Rejected: v.Rejected, Waited: r.Wait > 0}
	if v.Accepted == 0 {
		res.Applied = res.Waited // there is nothing to wait for
		return res, nil
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

// await waits for the projections. That they are late, or that ctx ends, is no error: the events are safe.
func (r *Result) await(ctx context.Context, receipt *journal.Receipt, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	notice, err := receipt.Applied(ctx)
	if err != nil {
		return
	}
	r.Applied = true
	r.Duplicates = min(len(notice.Duplicates), r.Accepted)
	r.Accepted -= r.Duplicates
}
