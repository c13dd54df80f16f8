package breakdown

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/ident"
	"github.com/rollcall/rollcall/internal/memo"
	"github.com/rollcall/rollcall/internal/period"
	"github.com/rollcall/rollcall/internal/projection"
)

// Limits of one question.
const (
	MaxLimit    = 1000 // values of a row
	maxRows     = 800
	maxFields   = 1_000_000 // values that are read, over all days and hours
	maxSketches = 50_000    // that are united
)

// QueryOptions of a Query. Redis, Shards, Clock and Memo must be set.
type QueryOptions struct {
	Redis  redis.UniversalClient // only read from: may be a replica
	Shards int
	Clock  clock.Clock
	Memo   *memo.Memo
	Keep   Keep // as in Options
}

// Query answers from Redis. It never writes. Safe for concurrent use.
type Query struct{ o QueryOptions }

// NewQuery makes a Query.
func NewQuery(o QueryOptions) *Query {
	o.Keep = o.Keep.orDefault()
	return &Query{o}
}

// Request asks for the most frequent values of a prop.
type Request struct {
	Project          string
	Zone             *time.Location
	Specs            []Spec // of the project, as in Options
	Event, Prop      string
	From, To, Period string      // as in counters.CountsRequest
	Interval         period.Kind // of the rows; 0 = no rows, only the whole range
	Limit            int         // values of a row, at most MaxLimit
}

// Breakdown answers a Request.
type Breakdown struct {
	Query Echo       `json:"query"`
	Zone  string     `json:"zone"`
	AsOf  *time.Time `json:"as_of"` // everything received before it is counted; null = nothing was applied yet
	Kept  Kept       `json:"kept"`
	Since *time.Time `json:"counted_since,omitempty"` // the event is broken down by the prop only since then
	Rows  []Row      `json:"rows"`
	Total Row        `json:"total"`
}

// Kept tells how far back answers are sure, but for what was imported later.
type Kept struct {
	Hours time.Time `json:"hours_since"` // PV by hour
	Days  time.Time `json:"days_since"`  // PV by day
	Users time.Time `json:"users_since"` // UV
}

// Echo is the question as it was understood.
type Echo struct {
	Project  string    `json:"project"`
	Event    string    `json:"event"`
	Prop     string    `json:"prop"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Interval string    `json:"interval,omitempty"`
	Limit    int       `json:"limit"`
}

// Row is one bucket, or the part of it that lies in the range. PV is the sum of Values, Rest, Other and None.
type Row struct {
	Label    string    `json:"label"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Known    bool      `json:"known"` // false: the event was not yet broken down by the prop when the row began; its numbers are of what came since
	PV       int64     `json:"pv"`
	Values   []Value   `json:"values"` // the most frequent ones; of equal ones the first by name
	Rest     int64     `json:"rest"`   // PV of values that are less frequent
	Other    *Value    `json:"other,omitempty"`
	None     *Value    `json:"none,omitempty"`
	Expired  bool      `json:"expired,omitempty"` // hours of it have passed their keep time: nothing is said of it
	Complete bool      `json:"complete"`
}

// Value is one value of a prop. UV is absent where it is not counted (hours, parts of days) or no longer kept. Other (values beyond what a
// day may have) and None (events without the prop) have no name.
type Value struct {
	Value string             `json:"value"`
	PV    int64              `json:"pv"`
	Share float64            `json:"share"` // of the row's PV
	UV    *counters.Estimate `json:"uv,omitempty"`
}

// Breakdown answers a Request. Errors: apperr Invalid (not_broken_down, bad_event, bad_limit, bad_range, bad_period, bad_time, empty_range,
// not_on_hour, range_too_long, too_many_buckets, query_too_large), Internal (damaged_count, damaged_sketch), Unavailable (redis_unavailable).
func (q *Query) Breakdown(ctx context.Context, r Request) (*Breakdown, error) {
	now := q.o.Clock.Now()
	if err := r.check(); err != nil {
		return nil, err
	}
	from, to, err := counters.Span(period.Asked{From: r.From, To: r.To, Name: r.Period}, now, r.Zone)
	if err != nil {
		return nil, err
	}
	metric := metricOf(r.Event)
	p := &plan{r: r, from: from, to: to, metric: metric, prop: string(ident.AppendEscaped(nil, r.Prop)), shard: shardOf(q.o.Shards, r.Project, metric)}
	p.base = keyBase(p.shard, r.Project)
	key := fmt.Sprintf("breakdown %d %d %d %d %s %s %s", r.Interval, r.Limit, from.UnixMilli(), to.UnixMilli(), r.Zone, metric, p.prop)
	v, err := q.o.Memo.Do(ctx, memo.Question{Project: r.Project, Key: key, To: to}, maxTime, func(ctx context.Context) (memo.Answer, error) {
		b, err := q.read(ctx, p, now)
		if err != nil {
			return memo.Answer{}, err
		}
		return memo.Answer{Value: b, Weight: (len(b.Rows) + 1) * (r.Limit + 2), Final: b.Total.Complete}, nil
	})
	if err != nil {
		return nil, err
	}
	return v.(*Breakdown), nil
}

const maxTime = 5 * time.Second

func (r *Request) check() error {
	if r.Event == "" || len(r.Event) > event.MaxName {
		return apperr.New(apperr.Invalid, "bad_event", "An event's name has 1 to %d bytes; * stands for any event.", event.MaxName).On("event")
	}
	if r.Limit < 1 || r.Limit > MaxLimit {
		return apperr.New(apperr.Invalid, "bad_limit", "limit is 1 to %d.", MaxLimit).On("limit").Over(strconv.Itoa(MaxLimit), "")
	}
	for _, s := range r.Specs {
		if s.Event == r.Event && slices.Contains(s.Props, r.Prop) {
			return nil
		}
	}
	var have []string
	for _, s := range r.Specs {
		have = append(have, s.Event+" by "+strings.Join(s.Props, ", "))
	}
	if len(have) == 0 {
		have = []string{"nothing"}
	}
	return apperr.New(apperr.Invalid, "not_broken_down", "The project does not count this event by this prop: name both in its breakdowns, and it will from then on. It counts %s.",
		strings.Join(have, "; ")).On("prop").Over("", "projects.breakdowns")
}

// plan is what is read.
type plan struct {
	r            Request
	from, to     time.Time
	metric, prop string
	shard        int
	base         string

	parts []part // of the range, in order
	rows  []rowPlan
}

// part is a day, or an hour of one.
type part struct {
	period.Bucket
	key     string
	day     string // label
	whole   bool   // a day
	expired bool   // an hour that had events and is no longer kept
}

type rowPlan struct {
	period.Bucket
	lo, hi int // parts
}

func (p *plan) layOut() error {
	rows := []period.Bucket{{From: p.from, To: p.to}}
	if p.r.Interval != 0 {
		var err error
		if rows, err = period.Range(p.r.Interval, p.from, p.to, p.r.Zone, maxRows); err != nil {
			return err
		}
	}
	days, err := period.Range(period.Day, p.from, p.to, p.r.Zone, counters.MaxDays)
	if err != nil {
		return apperr.New(apperr.Invalid, "range_too_long", "A question covers at most %d days: ask for a shorter range, several times.", counters.MaxDays).
			On("to").Over(fmt.Sprintf("%d days", counters.MaxDays), "")
	}
	for _, d := range days {
		if p.r.Interval != period.Hour && !d.From.Before(p.from) && !d.To.After(p.to) {
			p.parts = append(p.parts, part{Bucket: d, key: dayKey(p.base, p.metric, p.prop, d.Label), day: d.Label, whole: true})
			continue
		}
		hours, err := period.Range(period.Hour, later(d.From, p.from), earlier(d.To, p.to), p.r.Zone, maxRows)
		if err != nil {
			return err
		}
		for _, h := range hours {
			p.parts = append(p.parts, part{Bucket: h, key: hourKey(p.base, p.metric, p.prop, h.Label), day: d.Label})
		}
	}
	at := 0
	for _, b := range rows {
		r := rowPlan{Bucket: b, lo: at}
		r.From, r.To = later(b.From, p.from), earlier(b.To, p.to)
		for at < len(p.parts) && p.parts[at].From.Before(r.To) {
			at++
		}
		r.hi = at
		p.rows = append(p.rows, r)
	}
	return nil
}

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

func (q *Query) read(ctx context.Context, p *plan, now time.Time) (*Breakdown, error) {
	if err := p.layOut(); err != nil {
		return nil, err
	}
	home := ident.Shard(q.o.Shards, p.r.Project)
	pipe := q.o.Redis.Pipeline()
	asof := projection.AskAsOf(ctx, pipe, p.shard, Name)
	since := pipe.HMGet(ctx, sinceKey(keyBase(home, p.r.Project)), "", sinceField(p.metric, p.prop))
	sizes := make([]*redis.IntCmd, len(p.parts))
	hoursSince := now.Add(-q.o.Keep.Hours)
	for i := range p.parts {
		sizes[i] = pipe.HLen(ctx, p.parts[i].key)
	}
	_, _ = pipe.Exec(ctx) // every reply is looked at below
	b := &Breakdown{Zone: p.r.Zone.String(), Rows: []Row{}}
	b.Query = Echo{Project: p.r.Project, Event: p.r.Event, Prop: p.r.Prop, From: p.from.In(p.r.Zone), To: p.to.In(p.r.Zone), Limit: p.r.Limit}
	b.Kept = Kept{hoursSince.UTC(), now.Add(-q.o.Keep.Days).UTC(), now.Add(-q.o.Keep.Users).UTC()}
	if p.r.Interval != 0 {
		b.Query.Interval = p.r.Interval.String()
	}
	at, err := asof.Time()
	if err != nil {
		return nil, err
	}
	if !at.IsZero() {
		b.AsOf = &at
	}
	if b.Since, err = readSince(since, now); err != nil {
		return nil, err
	}
	all := int64(0)
	for i, cmd := range sizes {
		n, err := cmd.Result()
		if err != nil {
			return nil, fault(err, "damaged_count", "The values of "+p.parts[i].Label)
		}
		all += n
		p.parts[i].expired = n == 0 && !p.parts[i].whole && p.parts[i].To.Before(hoursSince) // if its day had more
	}
	if all > maxFields {
		return nil, tooLarge("values", all, maxFields)
	}
	if err := q.settleExpired(ctx, p); err != nil {
		return nil, err
	}
	counts, err := q.counts(ctx, p)
	if err != nil {
		return nil, err
	}
	rows := slices.Clone(p.rows)
	if p.r.Interval != 0 {
		rows = append(rows, rowPlan{period.Bucket{From: p.from, To: p.to}, 0, len(p.parts)})
	}
	tallies := make([]*tally, len(rows))
	for i, r := range rows {
		row := Row{Label: r.Label, From: r.From.In(p.r.Zone), To: r.To.In(p.r.Zone), Complete: b.AsOf != nil && !r.To.After(*b.AsOf)}
		row.Known = b.Since == nil || !r.From.Before(*b.Since)
		if slices.ContainsFunc(p.parts[r.lo:r.hi], func(p part) bool { return p.expired }) {
			row.Expired, row.Values = true, []Value{}
			tallies[i] = &tally{row: row}
			continue
		}
		tallies[i] = newTally(row, counts[r.lo:r.hi], p.r.Limit)
	}
	if err := q.users(ctx, p, rows, tallies, now); err != nil {
		return nil, err
	}
	for _, t := range tallies {
		b.Rows = append(b.Rows, t.row)
	}
	last := len(b.Rows) - 1
	b.Total, b.Rows = b.Rows[last], b.Rows[:last]
	if p.r.Interval == 0 {
		b.Rows = []Row{}
	}
	return b, nil
}

// readSince is nil if the dimension is as old as the project. One that was named when the project had events already is counted from its next
// event on; until then nothing is known of it.
func readSince(cmd *redis.SliceCmd, now time.Time) (*time.Time, error) {
	stored, err := cmd.Result()
	if err != nil {
		return nil, fault(err, "damaged_count", "The begin of the counts")
	}
	var ms [2]int64
	for i, v := range stored {
		text, ok := v.(string)
		if !ok && i == 0 {
			return nil, nil // nothing has come yet
		}
		if !ok {
			now = now.UTC()
			return &now, nil
		}
		if ms[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return nil, fault(err, "damaged_count", "The begin of the counts")
		}
	}
	if ms[1] <= ms[0] {
		return nil, nil
	}
	t := time.UnixMilli(ms[1]).UTC()
	return &t, nil
}

// settleExpired looks at the days of hours that are old and not there: if the hours that are there make up the day, the others had no events.
func (q *Query) settleExpired(ctx context.Context, p *plan) error {
	type sums struct{ day, hours []*redis.StringSliceCmd }
	days := map[string]*sums{}
	pipe := q.o.Redis.Pipeline()
	for i := range p.parts {
		part := &p.parts[i]
		if !part.expired || days[part.day] != nil {
			continue
		}
		s := &sums{}
		days[part.day] = s
		d := period.Of(period.Day, part.From, p.r.Zone)
		s.day = append(s.day, pipe.HVals(ctx, dayKey(p.base, p.metric, p.prop, d.Label)))
		for h := period.Of(period.Hour, d.From, p.r.Zone); h.From.Before(d.To); h = h.Next(p.r.Zone) {
			s.hours = append(s.hours, pipe.HVals(ctx, hourKey(p.base, p.metric, p.prop, h.Label)))
		}
	}
	if len(days) == 0 {
		return nil
	}
	_, _ = pipe.Exec(ctx) // every reply is looked at below
	whole := map[string]bool{}
	for label, s := range days {
		day, err := sum(s.day)
		hours, err2 := sum(s.hours)
		if err = errors.Join(err, err2); err != nil {
			return fault(err, "damaged_count", "The counts of "+label)
		}
		whole[label] = hours >= day
	}
	for i := range p.parts {
		part := &p.parts[i]
		part.expired = part.expired && !whole[part.day]
	}
	return nil
}

func sum(cmds []*redis.StringSliceCmd) (n int64, err error) {
	for _, cmd := range cmds {
		values, err := cmd.Result()
		if err != nil {
			return 0, err
		}
		for _, text := range values {
			v, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return 0, err
			}
			n += v
		}
	}
	return n, nil
}

// counts reads PV by field of each part.
func (q *Query) counts(ctx context.Context, p *plan) ([]map[string]int64, error) {
	counts := make([]map[string]int64, 0, len(p.parts))
	for chunk := range slices.Chunk(p.parts, askAtOnce) {
		cmds := make([]*redis.MapStringStringCmd, len(chunk))
		pipe := q.o.Redis.Pipeline()
		for i := range chunk {
			cmds[i] = pipe.HGetAll(ctx, chunk[i].key)
		}
		_, _ = pipe.Exec(ctx)
		for i, cmd := range cmds {
			stored, err := cmd.Result()
			if err != nil {
				return nil, fault(err, "damaged_count", "The counts of "+chunk[i].Label)
			}
			m := make(map[string]int64, len(stored))
			for field, text := range stored {
				if m[field], err = strconv.ParseInt(text, 10, 64); err != nil {
					return nil, fault(err, "damaged_count", "The counts of "+chunk[i].Label)
				}
			}
			counts = append(counts, m)
		}
	}
	return counts, nil
}

// tally is a row and the fields of what it shows.
type tally struct {
	row   Row
	shown []shown
}

type shown struct {
	field string
	value *Value
}

func newTally(row Row, counts []map[string]int64, limit int) *tally {
	sums := map[string]int64{}
	for _, m := range counts {
		for field, n := range m {
			sums[field] += n
			row.PV += n
		}
	}
	fields := make([]string, 0, len(sums))
	for field := range sums {
		if field != other && field != none {
			fields = append(fields, field)
		}
	}
	slices.SortFunc(fields, func(a, b string) int { return cmp.Or(cmp.Compare(sums[b], sums[a]), cmp.Compare(a, b)) })
	t := &tally{}
	value := func(field, name string) Value {
		n := sums[field]
		return Value{Value: name, PV: n, Share: share(n, row.PV)}
	}
	row.Values = make([]Value, min(limit, len(fields)))
	for i := range row.Values {
		row.Values[i] = value(fields[i], fields[i][len(ownValue):])
		t.shown = append(t.shown, shown{fields[i], &row.Values[i]})
	}
	for _, field := range fields[len(row.Values):] {
		row.Rest += sums[field]
	}
	for field, at := range map[string]**Value{other: &row.Other, none: &row.None} {
		if sums[field] > 0 {
			v := value(field, "")
			*at = &v
			t.shown = append(t.shown, shown{field, &v})
		}
	}
	t.row = row
	return t
}

func share(part, whole int64) float64 { return math.Round(float64(part)/float64(whole)*1e6) / 1e6 }

// users unites the sketches of what is shown, where all parts of a row are days and their sketches are there.
func (q *Query) users(ctx context.Context, p *plan, rows []rowPlan, tallies []*tally, now time.Time) error {
	n := 0
	oldest := now.Add(-q.o.Keep.Users)
	type asked struct {
		value  *Value
		count  *redis.IntCmd
		exists []*redis.IntCmd
	}
	var asks []asked
	pipe := q.o.Redis.Pipeline()
	for i, t := range tallies {
		parts := p.parts[rows[i].lo:rows[i].hi]
		if slices.ContainsFunc(parts, func(p part) bool { return !p.whole }) {
			continue
		}
		for _, s := range t.shown {
			a := asked{value: s.value}
			keys := make([]string, len(parts))
			for k, d := range parts {
				keys[k] = uvKey(p.base, p.metric, p.prop, d.Label, s.field)
				if d.To.Before(oldest) {
					a.exists = append(a.exists, pipe.Exists(ctx, keys[k]))
				}
			}
			if n += len(keys); n > maxSketches {
				return tooLarge("sketches", int64(n), maxSketches)
			}
			a.count = pipe.PFCount(ctx, keys...)
			asks = append(asks, a)
		}
	}
	if len(asks) == 0 {
		return nil
	}
	_, _ = pipe.Exec(ctx) // every reply is looked at below
	for _, a := range asks {
		n, err := a.count.Result()
		if err != nil {
			return fault(err, "damaged_sketch", "A sketch of users")
		}
		gone := false
		for _, cmd := range a.exists {
			there, err := cmd.Result()
			if err != nil {
				return fault(err, "damaged_sketch", "A sketch of users")
			}
			gone = gone || there == 0
		}
		if !gone {
			a.value.UV = counters.NewEstimate(n)
		}
	}
	return nil
}

func tooLarge(what string, n, limit int64) error {
	return apperr.New(apperr.Invalid, "query_too_large", "This question would read %d %s, more than the %d that one may: ask for a shorter range, fewer rows or a lower limit.",
		n, what, limit).On("from").Over(fmt.Sprintf("%d %s", limit, what), "")
}

func fault(err error, code, what string) error {
	var public *apperr.Error
	if errors.As(err, &public) {
		return err
	}
	return projection.ReadFault(err, Name, code, what)
}
