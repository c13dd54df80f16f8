package drops

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/period"
)

// MaxRows of one answer: a day of minutes, and some.
const MaxRows = 1500

// settle is how much later than others what is accounted for here may reach the journal: the counts of requests of which nothing was taken are
// gathered for a second (ingest.RefusedEvery) and then written.
const settle = 2 * time.Second

// QueryOptions of a Query. All must be set.
type QueryOptions struct {
	Redis  redis.UniversalClient // only read from: may be a replica
	Shards int
	Clock  clock.Clock
}

// Query answers from Redis, in one round trip. It never writes. Safe for concurrent use.
type Query struct{ o QueryOptions }

// NewQuery makes a Query.
func NewQuery(o QueryOptions) *Query { return &Query{o} }

// Request asks for the accounts of a range, given by Period or by From and To.
type Request struct {
	Project  string
	Zone     *time.Location
	From, To string // dates in the zone or RFC 3339 instants, [From, To); To "" = the end of today
	Period   string // today, yesterday, 7d, …: whole days, the last of them today; 1h, 90m: up to the end of this minute
	Interval string // of the rows: minute, hour or day; "" = whichever fits
}

// Drops answers a request. Errors: apperr Invalid (bad_time, bad_period, bad_range, bad_interval, empty_range, not_on_minute, not_on_hour,
// too_many_buckets, minutes_expired), Internal (damaged_count), Unavailable (redis_unavailable).
func (q *Query) Drops(ctx context.Context, r Request) (*Drops, error) {
	now := q.o.Clock.Now()
	p := plan{loc: r.Zone, kept: Kept{Minutes: now.Add(-KeepMinutes), Hours: now.Add(-KeepHours)}}
	if err := p.bounds(&r, now); err != nil {
		return nil, err
	}
	shard := shardOf(q.o.Shards, r.Project)
	if err := p.layOut(keyBase(shard, r.Project)); err != nil {
		return nil, err
	}
	asof, hashes, err := read(ctx, q.o.Redis, shard, p.keys)
	if err != nil {
		return nil, err
	}
	d := p.answer(asof, hashes)
	d.Query = Echo{Project: r.Project, From: p.from.In(p.loc), To: p.to.In(p.loc), Interval: p.interval}
	d.Zone, d.Kept = r.Zone.String(), p.kept
	return d, nil
}

// The intervals. Hours and days are those of package period.
const minuteInterval = "minute"

// plan is what has to be read for an answer.
type plan struct {
	loc      *time.Location
	from, to time.Time
	interval string
	kept     Kept

	keys []string
	rows []rowPlan
}

type rowPlan struct {
	label    string
	from, to time.Time
	parts    []part
	expired  bool
}

// part is a field's first half in the hash of a key.
type part struct {
	key int // index in plan.keys
	at  string
}

// bounds reads the range and the interval.
func (p *plan) bounds(r *Request, now time.Time) (err error) {
	span, relative := span(r.Period)
	switch {
	case r.Period != "" && (r.From != "" || r.To != ""):
		err = apperr.New(apperr.Invalid, "bad_range", "Give either period, or from and to.").On("period")
	case relative:
		p.to = now.Truncate(time.Minute).Add(time.Minute)
		p.from = p.to.Add(-span)
	case r.Period != "":
		if p.from, p.to, err = period.Named(r.Period, now, p.loc); err != nil {
			err = apperr.New(apperr.Invalid, "bad_period", "The period must be today, yesterday, 1d to 400d, 1h to 1080h or 1m to 1500m.").On("period")
		}
	case r.From == "":
		err = apperr.New(apperr.Invalid, "bad_range", "Give from (and to), or period.").On("from")
	case r.To == "":
		p.from, p.to, err = period.ParseRange(r.From, period.Of(period.Day, now, p.loc).To.Format(time.RFC3339), p.loc)
	default:
		p.from, p.to, err = period.ParseRange(r.From, r.To, p.loc)
	}
	if err != nil {
		return err
	}
	if err := p.chooseInterval(r.Interval); err != nil {
		return err
	}
	if p.interval == minuteInterval {
		return p.onMinutes()
	}
	if relative { // whole hours
		p.from = period.Of(period.Hour, p.from, p.loc).From
		if last := period.Of(period.Hour, p.to.Add(-1), p.loc); last.To.After(p.to) {
			p.to = last.To
		}
		return nil
	}
	if err := p.onHour("from", p.from); err != nil {
		return err
	}
	return p.onHour("to", p.to)
}

// span reads a period of hours or minutes: 1h, 90m.
func span(s string) (time.Duration, bool) {
	unit, limit := time.Hour, 1080
	digits, ok := strings.CutSuffix(s, "h")
	if !ok {
		unit, limit = time.Minute, MaxRows
		digits, ok = strings.CutSuffix(s, "m")
	}
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || digits[0] == '+' || n < 1 || n > limit {
		return 0, false
	}
	return time.Duration(n) * unit, true
}

func (p *plan) chooseInterval(asked string) error {
	switch asked {
	case minuteInterval, "hour", "day":
		p.interval = asked
	case "":
		switch length := p.to.Sub(p.from); {
		case length <= 6*time.Hour && p.onMinutes() == nil:
			p.interval = minuteInterval
		case length <= 4*24*time.Hour:
			p.interval = "hour"
		default:
			p.interval = "day"
		}
	default:
		return apperr.New(apperr.Invalid, "bad_interval", "The interval must be minute, hour or day.").On("interval")
	}
	return nil
}

func (p *plan) onMinutes() error {
	for field, t := range map[string]time.Time{"from": p.from, "to": p.to} {
		if !t.Truncate(time.Minute).Equal(t) {
			return apperr.New(apperr.Invalid, "not_on_minute", "%s must lie on a full minute.", field).On(field)
		}
	}
	if p.from.Before(p.kept.Minutes) {
		return apperr.New(apperr.Invalid, "minutes_expired", "Minutes are kept for 3 days; ask for interval=hour, or from %s on.",
			p.kept.Minutes.Truncate(time.Minute).Add(time.Minute).In(p.loc).Format(time.RFC3339)).On("from").Over("3 days", "")
	}
	return nil
}

func (p *plan) onHour(field string, t time.Time) error {
	h := period.Of(period.Hour, t, p.loc)
	if h.From.Equal(t) {
		return nil
	}
	return apperr.New(apperr.Invalid, "not_on_hour", "%s must lie on a full hour of the zone %s: take %s or %s, or ask for interval=minute.", field, p.loc,
		h.From.In(p.loc).Format(time.RFC3339), h.To.In(p.loc).Format(time.RFC3339)).On(field)
}

func (p *plan) layOut(base string) error {
	if p.interval == minuteInterval {
		return p.layOutMinutes(base)
	}
	kind, err := period.ParseKind(p.interval)
	if err != nil {
		return err
	}
	rows, err := period.Range(kind, p.from, p.to, p.loc, MaxRows)
	if err != nil {
		return err
	}
	last := ""
	for _, b := range rows {
		r := rowPlan{label: b.Label, from: later(b.From, p.from), to: earlier(b.To, p.to)}
		day := period.Of(period.Day, r.from, p.loc)
		if r.expired = day.To.Before(p.kept.Hours); !r.expired {
			if day.Label != last {
				last = day.Label
				p.keys = append(p.keys, hourKey(base, day.Label))
			}
			hours, err := period.Range(period.Hour, r.from, r.to, p.loc, MaxRows)
			if err != nil {
				return err
			}
			for _, h := range hours {
				r.parts = append(r.parts, part{len(p.keys) - 1, period.HourField(h.Label, day.Label)})
			}
		}
		p.rows = append(p.rows, r)
	}
	return nil
}

func (p *plan) layOutMinutes(base string) error {
	if n := p.to.Sub(p.from) / time.Minute; n > MaxRows {
		return apperr.New(apperr.Invalid, "too_many_buckets", "The range has more than %d minutes: ask for a shorter range or a longer interval.", MaxRows).
			On("to").Over(strconv.Itoa(MaxRows)+" minutes", "")
	}
	last := ""
	for t := p.from; t.Before(p.to); t = t.Add(time.Minute) {
		if key := minuteKey(base, t); key != last {
			last = key
			p.keys = append(p.keys, key)
		}
		p.rows = append(p.rows, rowPlan{
			label: t.In(p.loc).Format("2006-01-02T15:04-07:00"), from: t, to: t.Add(time.Minute),
			parts: []part{{len(p.keys) - 1, t.UTC().Format("04")}},
		})
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func (p *plan) answer(asof time.Time, hashes []hash) *Drops {
	d := &Drops{Rows: make([]Row, len(p.rows)), Total: Total{Sums: Sums{Rejected: map[string]int64{}}}}
	if !asof.IsZero() {
		asof = asof.Add(-settle)
		d.AsOf = &asof
	}
	complete := func(to time.Time) bool { return d.AsOf != nil && !to.After(asof) }
	for i := range p.rows {
		r := &p.rows[i]
		row := Row{Label: r.label, From: r.from.In(p.loc), To: r.to.In(p.loc), Expired: r.expired, Complete: complete(r.to)}
		row.Rejected = map[string]int64{}
		for _, part := range r.parts {
			if s := hashes[part.key][part.at]; s != nil {
				row.add(s)
			}
		}
		d.Total.add(&row.Sums)
		d.Total.Expired = d.Total.Expired || r.expired
		d.Rows[i] = row
	}
	d.Total.Complete = complete(p.to)
	return d
}
