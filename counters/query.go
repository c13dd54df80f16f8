package counters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/memo"
	"github.com/rollcall/rollcall/internal/period"
	"github.com/rollcall/rollcall/internal/projection"
)

// Limits of one request.
const (
	MaxRows = 2000
	MaxDays = 1100 // days in a range, and so the sketches in a union
)

var errLong = apperr.New(apperr.Invalid, "range_too_long", "A question covers at most %d days, whatever the interval: ask for a shorter range, several times.", MaxDays).
	On("to").Over(fmt.Sprintf("%d days", MaxDays), "")

// QueryOptions of a Query. Redis, Shards and Clock must be set.
type QueryOptions struct {
	Redis  redis.UniversalClient // only read from: may be a replica
	Shards int
	Clock  clock.Clock
	Memo   *memo.Memo // keeps answers about days that are over; nil = none are kept
	Keep   Keep       // as in Options
}

// Query answers from Redis. It never writes, and takes one round trip for each answer. Safe for concurrent use.
type Query struct{ o QueryOptions }

// NewQuery makes a Query.
func NewQuery(o QueryOptions) *Query {
	o.Keep = o.Keep.OrDefault()
	return &Query{o}
}

// CountsRequest asks for PV and UV of a range, given by Period or by From and To.
type CountsRequest struct {
	Project  string
	Zone     *time.Location
	Event    string      // Any for all events, Other for those without a metric of their own
	From, To string      // dates in the zone or RFC 3339 instants on a full local hour, [From, To); To "" = the end of today
	Period   string      // today, yesterday, 7d, …: whole days, the last of them today
	Interval period.Kind // of the rows
}

// Counts answers a request. Errors: apperr Invalid (bad_time, bad_period, bad_range, empty_range, not_on_hour, too_many_buckets, bad_event),
// Internal (damaged_sketch, damaged_count), Unavailable (redis_unavailable).
func (q *Query) Counts(ctx context.Context, r CountsRequest) (*Counts, error) {
	now := q.o.Clock.Now()
	p := plan{loc: r.Zone}
	var err error
	if p.from, p.to, err = Span(period.Asked{From: r.From, To: r.To, Name: r.Period}, now, r.Zone); err != nil {
		return nil, err
	}
	if r.Event == "" || len(r.Event) > event.MaxName {
		return nil, apperr.New(apperr.Invalid, "bad_event", "An event's name has 1 to %d bytes; * stands for any event.", event.MaxName).On("event")
	}
	metric := r.Event
	if metric != Any && metric != Other {
		metric = metricOf(metric)
	}
	p.shard = shardOf(q.o.Shards, r.Project, metric)
	p.metric, p.base = metric, keyBase(p.shard, r.Project)
	p.hoursSince, p.daysSince = now.Add(-q.o.Keep.Hours), now.Add(-q.o.Keep.Days)
	ask := func(ctx context.Context) (memo.Answer, error) {
		c, err := q.read(ctx, &r, &p)
		if err != nil {
			return memo.Answer{}, err
		}
		return memo.Answer{Value: c, Weight: len(c.Rows), Final: c.Total.Complete}, nil
	}
	if q.o.Memo == nil {
		a, err := ask(ctx)
		if err != nil {
			return nil, err
		}
		return a.Value.(*Counts), nil
	}
	key := fmt.Sprintf("counts %s %d %d %s %s", r.Interval, p.from.UnixMilli(), p.to.UnixMilli(), r.Zone, metric)
	v, err := q.o.Memo.Do(ctx, memo.Question{Project: r.Project, Key: key, To: p.to}, maxTime, ask)
	if err != nil {
		return nil, err
	}
	return v.(*Counts), nil
}

// maxTime bounds an answer that others may wait for.
const maxTime = 5 * time.Second

func (q *Query) read(ctx context.Context, r *CountsRequest, p *plan) (*Counts, error) {
	if err := p.layOut(r.Interval); err != nil {
		return nil, err
	}
	f, err := p.fetch(ctx, q.o.Redis)
	if err != nil {
		return nil, err
	}
	c, err := p.answer(f)
	if err != nil {
		return nil, err
	}
	c.Query = Echo{Project: r.Project, Event: r.Event, From: p.from.In(p.loc), To: p.to.In(p.loc), Interval: r.Interval}
	c.Zone = r.Zone.String()
	c.Kept = Kept{Hours: p.hoursSince, Days: p.daysSince}
	return c, nil
}

// Span reads a range and makes sure that it can be counted: PV and sketches are kept by local hour.
func Span(asked period.Asked, now time.Time, loc *time.Location) (from, to time.Time, err error) {
	if from, to, err = asked.Bounds(now, loc); err != nil {
		return from, to, err
	}
	if err = onHour("from", from, loc); err == nil {
		err = onHour("to", to, loc)
	}
	return from, to, err
}

func onHour(field string, t time.Time, loc *time.Location) error {
	h := period.Of(period.Hour, t, loc)
	if h.From.Equal(t) {
		return nil
	}
	return apperr.New(apperr.Invalid, "not_on_hour", "%s must lie on a full hour of the zone %s: take %s or %s.", field, loc,
		h.From.In(loc).Format(time.RFC3339), h.To.In(loc).Format(time.RFC3339)).On(field)
}

// plan is what has to be read for an answer.
type plan struct {
	loc                   *time.Location
	from, to              time.Time
	shard                 int
	metric, base          string
	hoursSince, daysSince time.Time

	days []dayPlan
	rows []rowPlan
}

// dayPlan is a day of the range, or the part of it that lies in the range.
type dayPlan struct {
	period.Bucket
	whole bool
	hours []period.Bucket // if not whole, or the rows are hours
}

// rowPlan is a row and the parts whose union it is.
type rowPlan struct {
	period.Bucket
	parts []part
}

// part is one sketch: a day, or an hour of day.
type part struct {
	day     int // index in plan.days
	hour    string
	key     string
	suspect bool // may have passed its keep time
}

func clip(b period.Bucket, from, to time.Time) period.Bucket {
	if b.From.Before(from) {
		b.From = from
	}
	if b.To.After(to) {
		b.To = to
	}
	return b
}

func (p *plan) layOut(interval period.Kind) error {
	rows, err := period.Range(interval, p.from, p.to, p.loc, MaxRows)
	if err != nil {
		return err
	}
	days, err := period.Range(period.Day, p.from, p.to, p.loc, MaxDays)
	if err != nil {
		return errLong
	}
	for _, b := range days {
		d := dayPlan{Bucket: clip(b, p.from, p.to)}
		d.whole = d.From.Equal(b.From) && d.To.Equal(b.To)
		if !d.whole || interval == period.Hour {
			if d.hours, err = period.Range(period.Hour, d.From, d.To, p.loc, MaxRows); err != nil {
				return err
			}
		}
		p.days = append(p.days, d)
	}
	at := 0
	for _, b := range rows {
		r := rowPlan{Bucket: clip(b, p.from, p.to)}
		if interval == period.Hour {
			for !r.From.Before(p.days[at].To) {
				at++
			}
			r.parts = []part{p.hourPart(at, r.Bucket)}
		} else {
			for ; at < len(p.days) && p.days[at].From.Before(r.To); at++ {
				r.parts = append(r.parts, p.partsOf(at)...)
			}
		}
		p.rows = append(p.rows, r)
	}
	return nil
}

func (p *plan) hourPart(day int, h period.Bucket) part {
	return part{day, period.HourField(h.Label, p.days[day].Label), uvHourKey(p.base, p.metric, h.Label), h.To.Before(p.hoursSince)}
}

// partsOf is a day as one sketch, or as those of its hours if the range cuts it.
func (p *plan) partsOf(day int) []part {
	d := &p.days[day]
	if d.whole {
		return []part{{day, "", uvDayKey(p.base, p.metric, d.Label), d.To.Before(p.daysSince)}}
	}
	parts := make([]part, len(d.hours))
	for i, h := range d.hours {
		parts[i] = p.hourPart(day, h)
	}
	return parts
}

// fetched holds the replies.
type fetched struct {
	asof     time.Time
	lifetime int64
	pv       []dayCounts // by day of the plan
	uv       []int64     // by row
	total    int64       // UV of the union
	exists   map[string]bool
	parts    []part // of the total
}

type dayCounts struct {
	all      int64
	fields   map[string]int64
	restated Restated
}

func (p *plan) fetch(ctx context.Context, rdb redis.UniversalClient) (*fetched, error) {
	f := &fetched{exists: map[string]bool{}}
	for i := range p.days {
		f.parts = append(f.parts, p.partsOf(i)...)
	}
	pipe := rdb.Pipeline()
	meta := projection.AskAsOf(ctx, pipe, p.shard, Name)
	lifetime := pipe.Get(ctx, totalKey(p.base, p.metric))
	days, rows := make([]*redis.MapStringStringCmd, len(p.days)), make([]*redis.IntCmd, len(p.rows))
	for i := range p.days {
		days[i] = pipe.HGetAll(ctx, pvKey(p.base, p.metric, p.days[i].Label))
	}
	exists := map[string]*redis.IntCmd{}
	union := func(parts []part) *redis.IntCmd {
		keys := make([]string, len(parts))
		for i, s := range parts {
			keys[i] = s.key
			if s.suspect && exists[s.key] == nil {
				exists[s.key] = pipe.Exists(ctx, s.key)
			}
		}
		return pipe.PFCount(ctx, keys...)
	}
	for i := range p.rows {
		rows[i] = union(p.rows[i].parts)
	}
	total := union(f.parts)
	_, _ = pipe.Exec(ctx) // every reply is looked at below

	var err error
	if f.asof, err = meta.Time(); err != nil {
		return nil, err
	}
	if f.lifetime, err = lifetime.Int64(); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fault(err, "damaged_count", "The lifetime count")
	}
	for i, cmd := range days {
		c, err := readDay(cmd)
		if err != nil {
			return nil, fault(err, "damaged_count", "The count of "+p.days[i].Label)
		}
		f.pv = append(f.pv, c)
	}
	for i, cmd := range rows {
		n, err := cmd.Result()
		if err != nil {
			return nil, fault(err, "damaged_sketch", "A sketch of users of "+p.rows[i].Label)
		}
		f.uv = append(f.uv, n)
	}
	if f.total, err = total.Result(); err != nil {
		return nil, fault(err, "damaged_sketch", "A sketch of users of the range")
	}
	for key, cmd := range exists {
		n, err := cmd.Result()
		if err != nil {
			return nil, fault(err, "damaged_sketch", "A sketch of users")
		}
		f.exists[key] = n == 1
	}
	return f, nil
}

func readDay(cmd *redis.MapStringStringCmd) (dayCounts, error) {
	stored, err := cmd.Result()
	if err != nil {
		return dayCounts{}, err
	}
	c := dayCounts{fields: make(map[string]int64, len(stored))}
	for field, s := range stored {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return c, err
		}
		switch field {
		case fieldLate:
			c.restated.Changes = n
		case fieldLateAt:
			c.restated.At = time.UnixMilli(n).UTC()
		default:
			c.fields[field] = n
			c.all += n
		}
	}
	return c, nil
}

func (p *plan) answer(f *fetched) (*Counts, error) {
	c := &Counts{Rows: make([]Row, len(p.rows))}
	c.Lifetime.PV = f.lifetime
	if !f.asof.IsZero() {
		c.AsOf = &f.asof
	}
	complete := func(to time.Time) bool { return !f.asof.IsZero() && !to.After(f.asof) }
	for i, r := range p.rows {
		row := Row{Label: r.Label, From: r.From.In(p.loc), To: r.To.In(p.loc), UV: NewEstimate(f.uv[i]), Complete: complete(r.To)}
		row.PV, row.Expired = f.count(r.parts)
		if row.Expired {
			row.UV = nil
		}
		row.Restated = f.restated(r.parts)
		c.Rows[i] = row
	}
	c.Total = Total{UV: NewEstimate(f.total), Complete: complete(p.to)}
	c.Total.PV, c.Total.Expired = f.count(f.parts)
	if c.Total.Expired {
		c.Total.UV = nil
	}
	c.Total.Restated = f.restated(f.parts)
	return c, nil
}

// count adds up the PV of the parts. A part that had events and no longer has its sketch makes UV unknown: not 0, and not what is left.
func (f *fetched) count(parts []part) (pv int64, expired bool) {
	for _, s := range parts {
		n := f.pv[s.day].all
		if s.hour != "" {
			n = f.pv[s.day].fields[s.hour]
		}
		pv += n
		if s.suspect && n > 0 && !f.exists[s.key] {
			expired = true
		}
	}
	return pv, expired
}

// restated adds up what came late to the whole days among the parts; of hours it is not known.
func (f *fetched) restated(parts []part) *Restated {
	var r Restated
	for _, s := range parts {
		if s.hour != "" {
			continue
		}
		late := &f.pv[s.day].restated
		r.Changes += late.Changes
		if late.At.After(r.At) {
			r.At = late.At
		}
	}
	if r.Changes == 0 {
		return nil
	}
	return &r
}

func fault(err error, code, what string) error { return projection.ReadFault(err, Name, code, what) }

// Names of a project's events.
type Names struct {
	Project string   `json:"project"`
	Names   []string `json:"names"` // in order
	Limit   int      `json:"limit"` // names beyond it are counted together, as the event **
}

// Names lists the events that are counted each by itself. Errors: Unavailable (redis_unavailable), Internal (damaged_count).
func (q *Query) Names(ctx context.Context, project string) (*Names, error) {
	names, err := q.o.Redis.SMembers(ctx, namesKey(keyBase(homeOf(q.o.Shards, project), project))).Result()
	if err != nil {
		return nil, fault(err, "damaged_count", "The list of names")
	}
	slices.Sort(names)
	return &Names{project, append([]string{}, names...), DefaultNames}, nil
}
