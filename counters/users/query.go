package users

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/semaphore"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/memo"
	"github.com/rollcall/rollcall/internal/ordinal"
	"github.com/rollcall/rollcall/internal/period"
)

// QueryOptions of a Query. Redis, Shards, Clock, Memo, Absent and Counts must be set.
type QueryOptions struct {
	Redis  redis.UniversalClient // only read from: may be a replica
	Shards int
	Clock  clock.Clock
	Memo   *memo.Memo
	Absent *memo.Absent
	Counts *counters.Query // answers what is asked of sketches
	Budget int64           // bytes of sets that one question may read; 0 = 256 MiB
	Limit  time.Duration   // time that one question may take; 0 = 10 s
	Keep   counters.Keep   // as in Options
	// Differs is told how far a sketch was from the truth, as a share of it, whenever both were asked for. May be nil.
	Differs func(share float64)
}

// Query answers from Redis. It never writes. Safe for concurrent use.
type Query struct {
	o     QueryOptions
	store *store
	dict  *ordinal.Dictionary
}

// NewQuery makes a Query.
func NewQuery(o QueryOptions) *Query {
	if o.Budget == 0 {
		o.Budget = 256 << 20
	}
	if o.Limit == 0 {
		o.Limit = 10 * time.Second
	}
	if o.Differs == nil {
		o.Differs = func(float64) {}
	}
	o.Keep = o.Keep.OrDefault()
	return &Query{o, &store{o.Redis, o.Shards, o.Budget, semaphore.NewWeighted(memoryBudget)}, ordinal.NewDictionary(o.Redis, o.Shards)}
}

// About is what every question has: whose users, and in which days.
type About struct {
	Project  string
	Zone     *time.Location
	Exact    []string // the events that the project has sets of, as in Options
	From, To string   // dates in the zone, or instants at which a local day begins, [From, To); To "" = the end of today
	Period   string   // instead: today, yesterday, 7d, …
}

// Method is how users are counted.
type Method string

// The methods.
const (
	Exact Method = "exact" // by sets
	HLL   Method = "hll"   // by sketches: an estimate
	Both  Method = "both"
)

// Request asks for the users of an event, in rows.
type Request struct {
	About
	Event    string
	Interval period.Kind // Day, Week or Month; with HLL alone Hour too
	Method   Method
}

// Users answers a Request. Errors: apperr Invalid (bad_range, bad_period, bad_time, empty_range, not_whole_days, range_too_long,
// too_many_buckets, bad_event, bad_interval, bad_method, not_exact, query_too_large, query_too_slow; with HLL those of counters.Query.Counts),
// Internal (damaged_set), Unavailable (redis_unavailable).
func (q *Query) Users(ctx context.Context, r Request) (*Users, error) {
	var u *Users
	var err error
	switch r.Method {
	case HLL:
		u = &Users{}
	case Exact, Both:
		if u, err = q.exact(ctx, r); err != nil {
			return nil, err
		}
	default:
		return nil, apperr.New(apperr.Invalid, "bad_method", "The method is exact, hll or both.").On("method")
	}
	if r.Method != Exact {
		c, err := q.o.Counts.Counts(ctx, counters.CountsRequest{
			Project: r.Project, Zone: r.Zone, Event: r.Event, From: r.From, To: r.To, Period: r.Period, Interval: r.Interval,
		})
		if err != nil {
			return nil, err
		}
		u = u.with(c, q.o.Differs)
	}
	u.Query.Method = r.Method
	return u, nil
}

func (q *Query) exact(ctx context.Context, r Request) (*Users, error) {
	if r.Interval == period.Hour {
		return nil, apperr.New(apperr.Invalid, "bad_interval", "Sets are kept by day: the interval is day, week or month; hours have method=hll.").On("interval")
	}
	metric, err := r.metric("event", r.Event, " Or ask with method=hll.")
	if err != nil {
		return nil, err
	}
	from, to, err := r.span(q.o.Clock.Now())
	if err != nil {
		return nil, err
	}
	rows, err := r.rows(r.Interval, from, to)
	if err != nil {
		return nil, err
	}
	key := fmt.Sprintf("users %s %d %d %s %s", r.Interval, from.UnixMilli(), to.UnixMilli(), r.Zone, metric)
	v, err := q.answer(ctx, r.Project, key, to, func(ctx context.Context) (memo.Answer, error) {
		c := newCollection(r.Zone)
		days := c.days(Active, metric, from, to)
		counts := make([]uint64, len(rows)+1)
		f, err := q.store.read(ctx, r.Project, 0, q.o.Shards, c, func(_ int, sets []*roaring.Bitmap) error {
			unions := make([]*roaring.Bitmap, len(rows))
			for i, b := range rows {
				unions[i] = union(days.of(sets, b))
				counts[i] += unions[i].GetCardinality()
				if err := ctx.Err(); err != nil {
					return err
				}
			}
			counts[len(rows)] += union(unions).GetCardinality()
			return nil
		})
		if err != nil {
			return memo.Answer{}, err
		}
		u := &Users{Rows: make([]Row, len(rows)), head: q.head(r.About, f, metric)}
		u.Query = Echo{Project: r.Project, Event: r.Event, From: from.In(r.Zone), To: to.In(r.Zone), Interval: r.Interval}
		for i, b := range rows {
			u.Rows[i] = Row{span: u.span(b, days.restated(f, b)), Exact: u.known(b.From, counts[i])}
		}
		whole := period.Bucket{From: from, To: to}
		u.Total = Row{span: u.span(whole, days.restated(f, whole)), Exact: u.known(from, counts[len(rows)])}
		return memo.Answer{Value: u, Weight: len(rows), Final: u.Total.Complete}, nil
	})
	if err != nil {
		return nil, err
	}
	u := *v.(*Users)
	return &u, nil
}

// answer runs a question inside the limits, or has the answer.
func (q *Query) answer(ctx context.Context, project, key string, to time.Time, ask func(context.Context) (memo.Answer, error)) (any, error) {
	v, err := q.o.Memo.Do(ctx, memo.Question{Project: project, Key: key, To: to}, q.o.Limit, ask)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, apperr.New(apperr.Invalid, "query_too_slow", "The answer took longer than a question may: ask for a shorter range, or for parts of it.").
			On("from").Over(q.o.Limit.String(), "limits.query_time").With(err)
	}
	return v, err
}

// metric is an event's sets.
func (a *About) metric(field, name, hint string) (string, error) {
	if name == "" || len(name) > event.MaxName {
		return "", apperr.New(apperr.Invalid, "bad_event", "An event's name has 1 to %d bytes; * stands for any event.", event.MaxName).On(field)
	}
	if !slices.Contains(a.Exact, name) {
		return "", apperr.New(apperr.Invalid, "not_exact",
			"The project has no exact sets of the event %s: name it in the project's exact events, and there will be from then on.%s", clip(name), hint).
			On(field).Over("", "projects.exact")
	}
	return metricOf(name), nil
}

// clip quotes what a client sent, and keeps it short.
func clip(s string) string { return strconv.Quote(s[:min(len(s), event.MaxName)]) }

// span reads the range, which must be of whole days.
func (a *About) span(now time.Time) (from, to time.Time, err error) {
	from, to, err = period.Asked{From: a.From, To: a.To, Name: a.Period}.Bounds(now, a.Zone)
	if err == nil {
		err = wholeDays("from", from, a.Zone)
	}
	if err == nil {
		err = wholeDays("to", to, a.Zone)
	}
	return from, to, err
}

func wholeDays(field string, t time.Time, loc *time.Location) error {
	d := period.Of(period.Day, t, loc)
	if d.From.Equal(t) {
		return nil
	}
	return apperr.New(apperr.Invalid, "not_whole_days", "Exact sets are kept by day, so %s must be the begin of one in the zone %s: take %s or %s.", field, loc,
		d.Label, d.Next(loc).Label).On(field)
}

// rows cuts the range; the first and the last are cut where the range cuts them.
func (a *About) rows(kind period.Kind, from, to time.Time) ([]period.Bucket, error) {
	rows, err := period.Range(kind, from, to, a.Zone, counters.MaxRows)
	if err != nil {
		return nil, err
	}
	if days := to.Sub(from).Hours() / 24; days > counters.MaxDays+1 {
		return nil, errLong
	}
	for i := range rows {
		rows[i].From, rows[i].To = later(rows[i].From, from), earlier(rows[i].To, to)
	}
	return rows, nil
}

var errLong = apperr.New(apperr.Invalid, "range_too_long", "A question covers at most %d days, whatever the interval: ask for a shorter range, several times.",
	counters.MaxDays).On("to").Over(fmt.Sprintf("%d days", counters.MaxDays), "")

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// The bounds of what a question looks at, whether or not there is something.
const (
	maxAsks  = 12_500 // sets, in each shard
	maxSteps = 30_000 // days, over all parts of the question
)

var errMany = apperr.New(apperr.Invalid, "query_too_large",
	"This question looks at too many sets: a set is one event on one day. Ask for shorter ranges, or for parts of it.").On("from").Over(fmt.Sprintf("%d sets", maxAsks), "")

// collection gathers the sets that a question reads, each once.
type collection struct {
	zone  *time.Location
	asks  []ask
	at    map[ask]int
	steps int
	many  bool // more than a question may have: some were left out
}

func newCollection(zone *time.Location) *collection {
	return &collection{zone: zone, at: map[ask]int{}}
}

// run is consecutive days of one metric.
type run struct {
	days []period.Bucket
	at   []int // index into asks, and so into the sets of a shard
}

// days asks for the sets of every day in [from, to).
func (c *collection) days(kind Kind, metric string, from, to time.Time) run {
	var r run
	for d := period.Of(period.Day, from, c.zone); d.From.Before(to); d = d.Next(c.zone) {
		if c.steps++; c.steps > maxSteps || len(c.asks) > maxAsks {
			c.many = true
			break
		}
		a := ask{kind, metric, d.Label}
		i, ok := c.at[a]
		if !ok {
			i = len(c.asks)
			c.at[a] = i
			c.asks = append(c.asks, a)
		}
		r.days, r.at = append(r.days, d), append(r.at, i)
	}
	return r
}

// in is the part of the days that lies in a bucket: indexes [lo, hi).
func (r *run) in(b period.Bucket) (lo, hi int) {
	lo, _ = slices.BinarySearchFunc(r.days, b.From, func(d period.Bucket, t time.Time) int { return d.From.Compare(t) })
	hi, _ = slices.BinarySearchFunc(r.days, b.To, func(d period.Bucket, t time.Time) int { return d.From.Compare(t) })
	return lo, hi
}

// of picks the sets of a bucket's days.
func (r *run) of(sets []*roaring.Bitmap, b period.Bucket) []*roaring.Bitmap {
	lo, hi := r.in(b)
	picked := make([]*roaring.Bitmap, hi-lo)
	for i := range picked {
		picked[i] = sets[r.at[lo+i]]
	}
	return picked
}

// restated adds up what came late to a bucket's days.
func (r *run) restated(f *facts, b period.Bucket) *counters.Restated {
	lo, hi := r.in(b)
	var all restated
	for _, i := range r.at[lo:hi] {
		all.changes += f.restated[i].changes
		all.at = max(all.at, f.restated[i].at)
	}
	if all.changes == 0 {
		return nil
	}
	return &counters.Restated{At: time.UnixMilli(all.at).UTC(), Changes: int64(all.changes)}
}

// union never changes its operands, and may be one of them.
func union(sets []*roaring.Bitmap) *roaring.Bitmap {
	switch len(sets) {
	case 0:
		return none
	case 1:
		return sets[0]
	}
	return roaring.FastOr(sets...)
}

// head is what every answer begins with.
func (q *Query) head(a About, f *facts, metrics ...string) head {
	h := head{loc: a.Zone, Zone: a.Zone.String(), Kept: q.o.Clock.Now().Add(-q.o.Keep.Days).UTC()}
	if !f.asof.IsZero() {
		h.AsOf = &f.asof
	}
	for _, m := range metrics {
		if since := f.begin(m, q.o.Clock.Now()); since != nil && (h.Since == nil || since.After(*h.Since)) {
			h.Since = since
		}
	}
	return h
}

// begin is since when a metric's sets know everything; nil = since the project has had events. A metric that was configured when it had some
// already knows nothing of those, and until the next event comes it knows nothing at all.
func (f *facts) begin(metric string, now time.Time) *time.Time {
	project, had := f.since[""]
	since, has := f.since[metric]
	switch {
	case !had:
		return nil // nothing has come yet
	case !has:
		since = now
	case !since.After(project):
		return nil
	}
	since = since.UTC()
	return &since
}

// known is a number, or nothing where the sets can't know.
func (h *head) known(from time.Time, n uint64) *Number {
	if h.Since != nil && from.Before(*h.Since) {
		return nil
	}
	return &Number{Value: int64(n), Method: Exact}
}

// since is a number that takes everything from an instant on, or nil.
func (h *head) since(from time.Time, n uint64) *uint64 {
	if h.Since != nil && from.Before(*h.Since) {
		return nil
	}
	return &n
}

func (h *head) complete(to time.Time) bool { return h.AsOf != nil && !to.After(*h.AsOf) }

// span is a row's part that all answers share.
func (h *head) span(b period.Bucket, r *counters.Restated) span {
	return span{Label: b.Label, From: b.From.In(h.loc), To: b.To.In(h.loc), Restated: r, Complete: h.complete(b.To)}
}

// share is part of whole, rounded to what a reader can use; nil for a whole of 0.
func share(part, whole uint64) *float64 {
	if whole == 0 {
		return nil
	}
	s := math.Round(float64(part)/float64(whole)*1e6) / 1e6
	return &s
}
