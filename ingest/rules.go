package ingest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/event"
)

// Limits bound one request. A zero field stands for its default.
type Limits struct {
	MaxBody   int64 // bytes after decompression; default 8 MiB, at most 15 MiB
	MaxEvents int   // default 5,000, at most event.MaxChunkEvents
	MaxEvent  int   // bytes of one event as it stands in the body; default 64 KiB
}

// DefaultLimits are 8 MiB, 5,000 events, 64 KiB an event.
func DefaultLimits() Limits { return Limits{MaxBody: 8 << 20, MaxEvents: 5000, MaxEvent: 64 << 10} }

// withDefaults fills in what is zero and cuts what a record of the journal could not hold.
func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	if l.MaxBody <= 0 {
		l.MaxBody = d.MaxBody
	}
	if l.MaxEvents <= 0 {
		l.MaxEvents = d.MaxEvents
	}
	if l.MaxEvent <= 0 {
		l.MaxEvent = d.MaxEvent
	}
	l.MaxBody = min(l.MaxBody, event.MaxBody-1<<20)
	l.MaxEvents = min(l.MaxEvents, event.MaxChunkEvents)
	return l
}

// The bounds of an event's time.
const (
	DefaultLateWindow = 7 * 24 * time.Hour
	maxAhead          = 10 * time.Minute
	oldest            = 31_536_000_000 // 1971-01-01, unix milliseconds
)

// Rules are what one body is judged by.
type Rules struct {
	Now        int64         // when the request was received, unix milliseconds
	LateWindow time.Duration // 0 = DefaultLateWindow
	Historical bool          // the late window does not hold; only 1971-01-01 does
	Limits     Limits

	Anonymous func() string           // the user of an event that has none; nil = it stays without. Called at most once
	Limited   func(event string) bool // nil = none: good events of such a name are listed in Verdict.Limited
	Refused   []int                   // indices, ascending, of good events that a frequency rule refuses: see CodeTooFrequent
}

// Limited is a good event whose name has a frequency rule.
type Limited struct {
	Index           int // among the events of the request, from 0
	Event, User, ID string
}

// Rejection is one event that was not taken.
type Rejection struct {
	Index  int    // among the events of the request, from 0
	ID     string // the event's id, as far as it can be given: at most 128 bytes
	Code   string // see codes.go
	Field  string // the field at fault, "" if it is the whole event
	Detail string // one sentence
}

// Verdict is the outcome of Judge: Received = Accepted + len(Rejected).
type Verdict struct {
	Received, Accepted int
	Rejected           []Rejection
	Limited            []Limited
}

// Judge reads every event of a body and adds those that keep the rules to b, in their order, on which Reset has been called with
// r.Now. It touches nothing else, and keeps nothing of body.
//
// A body that cannot be read is an *apperr.Error, and what b holds then is to be thrown away: malformed_body, empty_body,
// bad_sent_at (Malformed) or too_many_events (TooLarge).
func Judge(body []byte, r Rules, b *event.Builder) (Verdict, error) {
	j := newJudge(body, r, b)
	return j.close(j.body())
}

func newJudge(body []byte, r Rules, b *event.Builder) *judge {
	j := judges.Get().(*judge)
	j.scanner = scanner{b: body}
	j.out = b
	j.now, j.historical = r.Now, r.Historical
	j.limits = r.Limits.withDefaults()
	j.makeUser, j.limited, j.refused = r.Anonymous, r.Limited, r.Refused
	late := r.LateWindow
	if late <= 0 {
		late = DefaultLateWindow
	}
	j.late = late.Milliseconds()
	return j
}

// close ends a judge and returns its verdict, unless err is the refusal of the whole body.
func (j *judge) close(err error) (Verdict, error) {
	v := j.verdict
	j.forget()
	judges.Put(j)
	if err != nil {
		return Verdict{}, err
	}
	return v, nil
}

// judge is the state of one Judge.
type judge struct {
	scanner
	out        *event.Builder
	now, late  int64 // milliseconds
	historical bool
	limits     Limits
	verdict    Verdict
	batchSent  instant // sent_at beside the batch
	lateDetail string
	makeUser   func() string
	anonymous  string // what makeUser answered
	limited    func(event string) bool
	refused    []int
	segment    bool // the objects of an array are messages of the Segment API
	object
}

var judges = sync.Pool{New: func() any { return new(judge) }}

// forget lets go of everything that aliases a body.
func (j *judge) forget() {
	scratch, props := j.scratch[:0], j.props[:0]
	if cap(scratch) > 64<<10 {
		scratch = nil
	}
	*j = judge{object: object{scratch: scratch, props: props}}
}

// reject notes that the event at hand is not taken.
func (j *judge) reject(id, code, field string) {
	if len(id)+len(field) > maxEcho && strings.HasPrefix(field, "props.") {
		field = "props"
	}
	j.verdict.Rejected = append(j.verdict.Rejected, Rejection{
		Index: j.verdict.Received, ID: clip(id, maxEcho), Code: code, Field: field, Detail: j.detail(code, field),
	})
	j.verdict.Received++
}

// maxEcho is the most bytes of a client's own data that an answer repeats for one event.
const maxEcho = 128

// tooMany refuses the request at its first event beyond the limit.
func (j *judge) tooMany() error {
	if j.verdict.Received < j.limits.MaxEvents {
		return nil
	}
	return apperr.New(apperr.TooLarge, CodeTooMany, "The request has more than %d events; send fewer at a time. Nothing was stored.", j.limits.MaxEvents).
		Over(fmt.Sprintf("%d events", j.limits.MaxEvents), optionMaxEvents)
}
