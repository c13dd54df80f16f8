package users

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/memo"
	"github.com/rollcall/rollcall/internal/period"
	"github.com/rollcall/rollcall/internal/projection"
	"github.com/rollcall/rollcall/internal/realtest"
)

func (d *driver) query(change ...func(*QueryOptions)) *Query {
	o := QueryOptions{
		Redis: d.RDB, Shards: testShards, Clock: d.clock, Memo: memo.New(d.clock), Absent: memo.NewAbsent(d.clock),
		Counts: counters.NewQuery(counters.QueryOptions{Redis: d.RDB, Shards: testShards, Clock: d.clock}),
	}
	for _, f := range change {
		f(&o)
	}
	return NewQuery(o)
}

func (d *driver) about(project, from, to string) About {
	return About{Project: project, Zone: d.zone(project), Exact: d.p.o.Exact(project), From: from, To: to}
}

func code(err error) string {
	if err == nil {
		return ""
	}
	return apperr.As(err).Code
}

// people is the model of questions: who was there on which day, of one project and event.
type people struct {
	zone *time.Location
	days map[string]map[string]bool // by label
	came map[string]string          // by user, the first day
}

func (d *driver) people(project, name string) *people {
	p := &people{d.zone(project), map[string]map[string]bool{}, map[string]string{}}
	for _, r := range d.Journal {
		for _, e := range r.Events {
			if e.Project != project || e.User == "" || e.Bot || name != counters.Any && e.Name != name {
				continue
			}
			day := period.Of(period.Day, time.UnixMilli(e.Time), p.zone).Label
			if p.days[day] == nil {
				p.days[day] = map[string]bool{}
			}
			p.days[day][e.User] = true
			if first, ok := p.came[e.User]; !ok || day < first {
				p.came[e.User] = day
			}
		}
	}
	return p
}

// in is who was there in [from, to).
func (p *people) in(from, to time.Time) map[string]bool {
	all := map[string]bool{}
	for d := period.Of(period.Day, from, p.zone); d.From.Before(to); d = d.Next(p.zone) {
		maps.Copy(all, p.days[d.Label])
	}
	return all
}

// new is who came for the first time in [from, to).
func (p *people) new(from, to time.Time) map[string]bool {
	all := map[string]bool{}
	for d := period.Of(period.Day, from, p.zone); d.From.Before(to); d = d.Next(p.zone) {
		for u, first := range p.came {
			if first == d.Label {
				all[u] = true
			}
		}
	}
	return all
}

func both(a, b map[string]bool) (n uint64) {
	for u := range a {
		if b[u] {
			n++
		}
	}
	return n
}

// crowd writes some two weeks of two projects, with late events, kills and replays.
func crowd(t *testing.T, seed uint64) *driver {
	rnd := rand.New(rand.NewPCG(seed, 17))
	d := newDriver(t, at(t, "2026-10-12T20:00:00Z"))
	d.random(rnd, 420) // some two weeks
	d.RunHurt(rnd, 25)
	return d
}

func TestQuestionsAgainstTheModel(t *testing.T) {
	d := crowd(t, 3)
	ctx, q := context.Background(), d.query()
	for _, ask := range []struct{ project, name, from, to string }{
		{"demo", "*", "2026-10-10", "2026-11-10"}, {"demo", "*", "2026-10-30", "2026-11-03"}, {"two", "buy", "2026-10-10", "2026-11-12"},
		{"two", "阅读", "2026-10-25", "2026-11-05"}, {"two", "*", "2026-09-01", "2026-11-30"},
	} {
		p := d.people(ask.project, ask.name)
		if n := len(p.came); n < 300 {
			t.Fatalf("only %d users of %s", n, ask.name)
		}
		about := d.about(ask.project, ask.from, ask.to)
		from, to, err := period.ParseRange(ask.from, ask.to, p.zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, interval := range []period.Kind{period.Day, period.Week, period.Month} {
			what := fmt.Sprintf("%v by %v", ask, interval)
			u, err := q.Users(ctx, Request{About: about, Event: ask.name, Interval: interval, Method: Exact})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range u.Rows {
				if want := len(p.in(r.From, r.To)); r.Exact.Value != int64(want) {
					t.Errorf("%s: %d users in %s, want %d", what, r.Exact.Value, r.Label, want)
				}
			}
			if want := len(p.in(from, to)); u.Total.Exact.Value != int64(want) {
				t.Errorf("%s: %d users, want %d", what, u.Total.Exact.Value, want)
			}
			a, err := q.Active(ctx, ActiveRequest{About: about, Event: ask.name, Interval: interval})
			if err != nil {
				t.Fatal(err)
			}
			d.checkActive(what, p, interval, a)
			for _, kind := range []Kind{First, Active} {
				for _, rolling := range []bool{false, true} {
					r := RetentionRequest{About: about, Cohort: kind, Start: ask.name, Return: ask.name, Interval: interval, Periods: 5, Rolling: rolling}
					m, err := q.Retention(ctx, r)
					if err != nil {
						t.Fatal(err)
					}
					d.checkRetention(what, p, r, m)
				}
			}
		}
	}
}

func (d *driver) checkActive(what string, p *people, interval period.Kind, a *ActiveUsers) {
	d.t.Helper()
	for _, r := range a.Rows {
		b := period.Of(interval, r.From, p.zone)
		if !b.From.Equal(r.From) || !b.To.Equal(r.To) {
			d.t.Fatalf("%s: row %s is %v to %v, not whole", what, r.Label, r.From, r.To)
		}
		before := b.Prev(p.zone)
		now, last, fresh := p.in(b.From, b.To), p.in(before.From, before.To), p.new(b.From, b.To)
		days := func(n int) time.Time {
			d := period.Of(period.Day, b.To.Add(-1), p.zone)
			for range n - 1 {
				d = d.Prev(p.zone)
			}
			return d.From
		}
		n := func(set map[string]bool) uint64 { return uint64(len(set)) }
		stayed, month := both(now, last), n(p.in(days(30), b.To))
		want := []uint64{n(now), n(fresh), stayed, n(now) - n(fresh) - stayed, n(last) - stayed, n(p.in(days(7), b.To)), month}
		for i, got := range []*uint64{r.Active, r.New, r.Returning, r.Resurrected, r.Dormant, r.Rolling7, r.Rolling30} {
			if got == nil || *got != want[i] {
				d.t.Errorf("%s: number %d of %s is %v, want %d", what, i, r.Label, got, want[i])
			}
		}
		from, whole := days(30), month
		if interval == period.Month {
			from, whole = b.From, n(now)
		}
		sum, count := 0, 0
		for day := period.Of(period.Day, from, p.zone); day.From.Before(b.To); day = day.Next(p.zone) {
			sum, count = sum+len(p.days[day.Label]), count+1
		}
		switch {
		case whole == 0 && r.Stickiness != nil, whole > 0 && r.Stickiness == nil:
			d.t.Errorf("%s: %s has stickiness %v of %d users", what, r.Label, r.Stickiness, whole)
		case whole > 0:
			if s := float64(sum) / float64(count) / float64(whole); *r.Stickiness < s-1e-6 || *r.Stickiness > s+1e-6 {
				d.t.Errorf("%s: %s has stickiness %v, want %v", what, r.Label, *r.Stickiness, s)
			}
		}
	}
}

func (d *driver) checkRetention(what string, p *people, r RetentionRequest, m *Retention) {
	d.t.Helper()
	now := d.clock.Now()
	sums := make([]struct{ back, whole uint64 }, r.Periods+1)
	for _, row := range m.Rows {
		cohort := p.new(row.From, row.To)
		if r.Cohort == Active {
			cohort = p.in(row.From, row.To)
		}
		if row.Size != uint64(len(cohort)) {
			d.t.Errorf("%s: cohort %s has %d users, want %d", what, row.Label, row.Size, len(cohort))
		}
		b := period.Of(r.Interval, row.From, p.zone)
		for n, cell := range row.Cells {
			to := b.To
			if r.Rolling {
				to = now.Add(48 * time.Hour)
			}
			if want := both(cohort, p.in(b.From, to)); cell.Users != want {
				d.t.Errorf("%s, kind %d, rolling %v: %d of cohort %s are back in period %d, want %d", what, r.Cohort, r.Rolling, cell.Users, row.Label, n, want)
			}
			if complete := !b.To.After(*m.AsOf); cell.Complete != complete {
				d.t.Errorf("%s: period %d of %s complete: %v", what, n, row.Label, cell.Complete)
			} else if complete {
				sums[n].back += cell.Users
				sums[n].whole += row.Size
			}
			b = b.Next(p.zone)
		}
		if len(row.Cells) <= r.Periods && !b.From.After(now) {
			d.t.Errorf("%s: cohort %s ends after %d periods, though the next has begun", what, row.Label, len(row.Cells))
		}
	}
	for n, s := range sums {
		got := m.Average[n].Share
		if s.whole == 0 != (got == nil) {
			d.t.Errorf("%s: average of period %d is %v of %d users", what, n, got, s.whole)
		} else if got != nil && (*got < float64(s.back)/float64(s.whole)-1e-6 || *got > float64(s.back)/float64(s.whole)+1e-6) {
			d.t.Errorf("%s: average of period %d is %v, want %d/%d", what, n, *got, s.back, s.whole)
		}
	}
}

func TestExpressionsAgainstTheModel(t *testing.T) {
	d := crowd(t, 4)
	ctx, q := context.Background(), d.query()
	rnd := rand.New(rand.NewPCG(9, 9))
	names := []string{"buy", "阅读", "*"}
	models := map[string]*people{}
	for _, name := range names {
		models[name] = d.people("two", name)
	}
	everybody := map[string]bool{}
	for _, r := range d.Journal {
		for _, e := range r.Events {
			if e.Project == "two" && e.User != "" && !e.Bot {
				everybody[e.User] = true
			}
		}
	}
	// make builds an expression and its set, the plain way.
	var build func(depth int) (Expression, map[string]bool)
	build = func(depth int) (Expression, map[string]bool) {
		kind := rnd.IntN(5)
		if depth == 0 {
			kind = 4
		}
		set := map[string]bool{}
		switch kind {
		case 0, 1:
			var list []Expression
			for i := range 1 + rnd.IntN(3) {
				e, s := build(depth - 1)
				list = append(list, e)
				switch {
				case kind == 0:
					maps.Copy(set, s)
				case i == 0:
					set = s
				default:
					maps.DeleteFunc(set, func(u string, _ bool) bool { return !s[u] })
				}
			}
			if kind == 0 {
				return Expression{Or: list}, set
			}
			return Expression{And: list}, set
		case 2:
			e, s := build(depth - 1)
			for u := range everybody {
				if !s[u] {
					set[u] = true
				}
			}
			return Expression{Not: &e}, set
		}
		name := names[rnd.IntN(len(names))]
		from := period.Of(period.Day, at(t, "2026-10-12T00:00:00Z").AddDate(0, 0, rnd.IntN(24)), models[name].zone)
		to := from
		for range 1 + rnd.IntN(9) {
			to = to.Next(models[name].zone)
		}
		e := Expression{Event: name, From: from.Label, To: to.Label, First: rnd.IntN(4) == 0}
		if e.First {
			return e, maps.Clone(models[name].new(from.From, to.From))
		}
		return e, models[name].in(from.From, to.From)
	}
	some := 0
	for range 60 {
		e, want := build(3)
		r := OverlapRequest{Project: "two", Zone: d.zone("two"), Exact: d.exact["two"], Expression: e}
		o, err := q.Overlap(ctx, r)
		if err != nil {
			t.Fatalf("%+v: %v", e, err)
		}
		if o.Users.Value != int64(len(want)) || o.Of != uint64(len(everybody)) {
			t.Errorf("%+v: %d of %d users, want %d of %d", e, o.Users.Value, o.Of, len(want), len(everybody))
		}
		if len(want) > 0 && len(want) < len(everybody) {
			some++
		}
		var listed []string
		for cursor, page := "", 0; page == 0 || cursor != ""; page++ {
			m, err := q.Members(ctx, r, 1+rnd.IntN(400), cursor)
			if err != nil {
				t.Fatal(err)
			}
			listed, cursor = append(listed, m.Users...), m.Next
		}
		slices.Sort(listed)
		if !slices.Equal(listed, slices.Sorted(maps.Keys(want))) {
			t.Errorf("%+v lists %d users, want %d", e, len(listed), len(want))
		}
		for _, u := range []string{"u1", "u77", "nobody", "u" + fmt.Sprint(rnd.IntN(2000))} {
			m, err := q.Member(ctx, r, u)
			if err != nil {
				t.Fatal(err)
			}
			if m.Member != want[u] || m.Known != everybody[u] {
				t.Errorf("%+v: %s is %+v, want member %v, known %v", e, u, m, want[u], everybody[u])
			}
		}
	}
	if some < 30 {
		t.Errorf("only %d of 60 expressions have some users and not all", some)
	}
}

func TestRollingWindows(t *testing.T) {
	rnd := rand.New(rand.NewPCG(2, 2))
	for range 200 {
		days := make([]*roaring.Bitmap, rnd.IntN(80))
		for i := range days {
			days[i] = roaring.New()
			for range rnd.IntN(20) {
				days[i].Add(rnd.Uint32N(200))
			}
		}
		width := 1 + rnd.IntN(35)
		got := rolling(days, width)
		for i := range days {
			if want := roaring.FastOr(days[max(0, i-width+1) : i+1]...).GetCardinality(); got[i] != want {
				t.Fatalf("%d days, width %d: day %d has %d, want %d", len(days), width, i, got[i], want)
			}
		}
	}
}

// A question about days that are over costs one reading, however many ask at once, until an event comes that could change the answer.
func TestStampede(t *testing.T) {
	ctx := context.Background()
	d := crowd(t, 5)
	d.clock.Add(48 * time.Hour)
	d.write(view("u1", d.clock.Now()))
	d.Run(100)
	reads := &counter{}
	rdb := d.server.Client()
	rdb.AddHook(reads)
	kept := memo.New(d.clock)
	q := d.query(func(o *QueryOptions) { o.Redis, o.Memo = rdb, kept })
	r := Request{About: d.about("demo", "2026-10-14", "2026-10-24"), Event: "*", Interval: period.Day, Method: Exact}
	var wg sync.WaitGroup
	answers := make([]int64, 1000)
	for i := range answers {
		wg.Go(func() {
			u, err := q.Users(ctx, r)
			if err != nil {
				t.Error(err)
				return
			}
			answers[i] = u.Total.Exact.Value
		})
	}
	wg.Wait()
	if n := reads.pipelines.Load(); n != 1 {
		t.Errorf("%d readings for 1,000 equal questions, want 1", n)
	}
	if want := len(d.people("demo", "*").in(at(t, "2026-10-14T04:00:00Z"), at(t, "2026-10-24T04:00:00Z"))); answers[0] != int64(want) || slices.Max(answers) != slices.Min(answers) {
		t.Errorf("answers %d to %d, want %d", slices.Min(answers), slices.Max(answers), want)
	}

	late := view("late", at(t, "2026-10-20T12:00:00Z"))
	d.write(late)
	d.Run(100)
	kept.Committed(d.Journal[len(d.Journal)-1:])
	u, err := q.Users(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	if u.Total.Exact.Value != answers[0]+1 || reads.pipelines.Load() != 2 {
		t.Errorf("%d users after a late one, %d before; %d readings", u.Total.Exact.Value, answers[0], reads.pipelines.Load())
	}
	for _, row := range u.Rows {
		if row.Label == "2026-10-20" && (row.Restated == nil || !row.Restated.At.Equal(time.UnixMilli(d.clock.Now().UnixMilli())) || row.Restated.Changes < 1) {
			t.Errorf("the day of the late event is restated %+v", row.Restated)
		}
	}
	// A late event of another project changes nothing.
	d.write(event.Event{Project: "two", User: "late", Time: late.Time})
	d.Run(100)
	kept.Committed(d.Journal[len(d.Journal)-1:])
	if _, err := q.Users(ctx, r); err != nil || reads.pipelines.Load() != 2 {
		t.Errorf("error %v, %d readings after another project's late event, want 2", err, reads.pipelines.Load())
	}
	d.clock.Add(20 * time.Second)
	if _, err := q.Users(ctx, r); err != nil || reads.pipelines.Load() != 3 {
		t.Errorf("error %v, %d readings when the time is up, want 3", err, reads.pipelines.Load())
	}
}

// A question for a user whom the project never had reaches Redis once, until he comes.
func TestUnknownUsersAreRemembered(t *testing.T) {
	ctx := context.Background()
	d := newDriver(t, at(t, "2026-12-03T12:00:00Z"))
	d.views("2026-12-03T10:00:00Z", "u1")
	d.Run(1)
	var commands atomic.Int64
	rdb := d.server.Client()
	rdb.AddHook(&counter{all: &commands})
	absent := memo.NewAbsent(d.clock)
	q := d.query(func(o *QueryOptions) { o.Redis, o.Absent = rdb, absent })
	r := OverlapRequest{Project: "demo", Zone: time.UTC, Exact: []string{"*"}, Expression: Expression{Event: "*", Period: "today"}}
	ask := func() *Membership {
		m, err := q.Member(ctx, r, "u2")
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	ask()
	n := commands.Load()
	if m := ask(); m.Known || m.Member || commands.Load() != n {
		t.Errorf("%+v, %d commands for the second question", m, commands.Load()-n)
	}
	d.views("2026-12-03T11:00:00Z", "u2")
	b := projection.Batch{Records: d.Journal[1:]}
	if err := d.Batch(1, nil); err != nil {
		t.Fatal(err)
	}
	b.Records[0].Events[0].First = true // as package ordinal has it
	absent.Committed(b.Records)
	if m := ask(); !m.Known || !m.Member {
		t.Errorf("%+v after he came", m)
	}
}

// HL-04: questions are answered by a replica, which refuses every command that may write.
func TestHL04_AReplicaAnswers(t *testing.T) {
	ctx := context.Background()
	d := crowd(t, 8)
	replica := realtest.Redis(t)
	replica.ReplicaOf(d.server)
	replica.WaitInSync(d.server)
	q := d.query(func(o *QueryOptions) { o.Redis = replica.Client() })
	about := d.about("demo", "2026-10-14", "2026-10-20")
	u, err := q.Users(ctx, Request{About: about, Event: "*", Interval: period.Day, Method: Exact})
	if err != nil || u.Total.Exact.Value == 0 {
		t.Errorf("%+v, %v", u, err)
	}
	if _, err := q.Active(ctx, ActiveRequest{About: about, Event: "*", Interval: period.Day}); err != nil {
		t.Error(err)
	}
	if _, err := q.Retention(ctx, RetentionRequest{About: about, Cohort: First, Start: "*", Return: "*", Interval: period.Day}); err != nil {
		t.Error(err)
	}
	r := OverlapRequest{Project: "demo", Zone: about.Zone, Exact: about.Exact, Expression: Expression{Not: &Expression{Event: "*", Period: "7d"}}}
	if _, err := q.Overlap(ctx, r); err != nil {
		t.Error(err)
	}
	if m, err := q.Members(ctx, r, 10, ""); err != nil || len(m.Users) == 0 {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := q.Member(ctx, r, "u1"); err != nil || !m.Known {
		t.Errorf("%+v, %v", m, err)
	}
}

// counter counts the readings of a store.
type counter struct {
	redis.Hook
	pipelines atomic.Int64
	all       *atomic.Int64 // commands; may be nil
}

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if c.all != nil {
			c.all.Add(1)
		}
		return next(ctx, cmd)
	}
}
func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if c.all != nil {
			c.all.Add(int64(len(cmds)))
		}
		for _, cmd := range cmds {
			if cmd.Name() == "strlen" {
				c.pipelines.Add(1)
				break
			}
		}
		return next(ctx, cmds)
	}
}

func TestRefusals(t *testing.T) {
	ctx := context.Background()
	d := crowd(t, 6)
	q := d.query(func(o *QueryOptions) { o.Budget = 200 })
	about := d.about("demo", "2026-10-14", "2026-10-20")
	for want, r := range map[string]Request{
		"query_too_large": {About: about, Event: "*", Interval: period.Day, Method: Exact},
		"not_exact":       {About: about, Event: "buy", Interval: period.Day, Method: Exact},
		"bad_method":      {About: about, Event: "*", Interval: period.Day, Method: "guess"},
		"bad_interval":    {About: about, Event: "*", Interval: period.Hour, Method: Exact},
		"not_whole_days":  {About: d.about("demo", "2026-10-14T12:00:00Z", "2026-10-20"), Event: "*", Interval: period.Day, Method: Exact},
		"range_too_long":  {About: d.about("demo", "2016-10-14", "2026-10-20"), Event: "*", Interval: period.Month, Method: Exact},
		"empty_range":     {About: d.about("demo", "2026-10-14", "2026-10-14"), Event: "*", Interval: period.Day, Method: Exact},
		"bad_event":       {About: about, Event: strings.Repeat("x", 65), Interval: period.Day, Method: Exact},
	} {
		if _, err := q.Users(ctx, r); code(err) != want {
			t.Errorf("%+v: %v, want %s", r, err, want)
		}
	}
	leaves := make([]Expression, MaxLeaves)
	for i := range leaves {
		leaves[i] = Expression{Event: "*", From: fmt.Sprintf("%d-01-01", 1980+i/2), To: fmt.Sprintf("%d-12-30", 1982+i/2)}
	}
	r64 := OverlapRequest{Project: "demo", Zone: d.zone("demo"), Exact: []string{"*"}, Expression: Expression{Or: leaves}}
	if _, err := d.query().Overlap(ctx, r64); code(err) != "query_too_large" {
		t.Errorf("64 leaves of three years each: %v, want query_too_large", err)
	}
	if _, err := ReadExpression([]byte(strings.Repeat(`{"not":`, 5000) + `{"event":"*"}` + strings.Repeat("}", 5000))); code(err) != "bad_expression" {
		t.Errorf("5,000 nots: %v, want bad_expression", err)
	}
	slow := d.query(func(o *QueryOptions) { o.Limit = time.Nanosecond })
	if _, err := slow.Users(ctx, Request{About: about, Event: "*", Interval: period.Day, Method: Exact}); code(err) != "query_too_slow" {
		t.Errorf("%v, want query_too_slow", err)
	}
	leaf := Expression{Event: "*", From: "2026-10-14", To: "2026-10-15"}
	deep, wide := leaf, make([]Expression, MaxLeaves+1)
	for range MaxDepth {
		deep = Expression{And: []Expression{deep}}
	}
	for i := range wide {
		wide[i] = leaf
	}
	loop := func(string) (Expression, error) { return Expression{Cohort: "me"}, nil }
	for i, e := range []Expression{
		{}, {And: []Expression{}}, {And: []Expression{leaf}, Or: []Expression{leaf}}, {Not: &Expression{}}, {First: true}, {Cohort: "x", From: "2026-10-14"},
		deep, {Or: wide}, {Cohort: "me"},
	} {
		_, err := q.Overlap(ctx, OverlapRequest{Project: "demo", Zone: time.UTC, Exact: []string{"*"}, Expression: e, Cohort: loop})
		if code(err) != "bad_expression" || !strings.HasPrefix(apperr.As(err).Field, "expression") {
			t.Errorf("expression %d: %v, want bad_expression", i, err)
		}
	}
	r := OverlapRequest{Project: "demo", Zone: d.zone("demo"), Exact: []string{"*"}, Expression: leaf}
	for _, cursor := range []string{"x", "bTEuMi4", cursorOf(testShards, 0), cursorOf(-1, 0)} {
		if _, err := d.query().Members(ctx, r, 10, cursor); code(err) != "bad_cursor" {
			t.Errorf("cursor %q: %v, want bad_cursor", cursor, err)
		}
	}
	for _, limit := range []int{0, -1, MaxMembers + 1} {
		if _, err := d.query().Members(ctx, r, limit, ""); code(err) != "bad_limit" {
			t.Errorf("limit %d: %v, want bad_limit", limit, err)
		}
	}
}

// Damage is an error with the day's name, never a number.
func TestBM04_DamageIsNoNumber(t *testing.T) {
	ctx := context.Background()
	d := crowd(t, 7)
	about := d.about("demo", "2026-10-14", "2026-10-20")
	key := setKey(keyBase(1, "demo"), Active, "*", "2026-10-15")
	whole := d.RDB.Get(ctx, key).Val()
	for _, bad := range []string{whole[:len(whole)-1], "", "x"} {
		d.RDB.Set(ctx, key, bad, 0)
		if _, err := d.query().Users(ctx, Request{About: about, Event: "*", Interval: period.Week, Method: Exact}); code(err) != "damaged_set" || !strings.Contains(err.Error(), "2026-10-15") {
			t.Errorf("%d bytes of %d: %v, want damaged_set with the day", len(bad), len(whole), err)
		}
		if got := d.RDB.Get(ctx, key).Val(); got != bad {
			t.Error("the set was written")
		}
	}
	d.RDB.Del(ctx, key)
	d.RDB.HSet(ctx, key, "a", "b")
	if _, err := d.query().Users(ctx, Request{About: about, Event: "*", Interval: period.Week, Method: Exact}); code(err) != "damaged_set" {
		t.Errorf("%v of a hash, want damaged_set", err)
	}
}

// An event that got its sets when the project had events already knows nothing of the days before.
func TestRowsBeforeTheSetsAreNotKnown(t *testing.T) {
	ctx := context.Background()
	d := newDriver(t, at(t, "2026-11-10T12:00:00Z"))
	day := func(s string) time.Time { return at(t, s+"T10:00:00Z") }
	for _, s := range []string{"2026-11-08", "2026-11-09", "2026-11-10"} {
		e := view("u1", day(s))
		e.Name = "buy"
		d.write(e)
	}
	d.Run(10)
	d.exact["demo"] = []string{"*", "buy"}
	d.clock.Set(at(t, "2026-11-12T12:00:00Z"))
	e := view("u2", day("2026-11-12"))
	e.Name = "buy"
	d.write(e)
	d.clock.Set(at(t, "2026-11-14T12:00:00Z"))
	d.write(e)
	d.Run(10)
	q := d.query()
	u, err := q.Users(ctx, Request{About: d.about("demo", "2026-11-08", "2026-11-14"), Event: "buy", Interval: period.Day, Method: Exact})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range u.Rows {
		got = append(got, r.Exact.text())
	}
	if want := []string{"", "", "", "", "", "0"}; !slices.Equal(got, want) || u.Since == nil || u.Total.Exact != nil {
		t.Errorf("rows %q since %v, total %v; want %q", got, u.Since, u.Total.Exact, want)
	}
	before := OverlapRequest{Project: "demo", Zone: time.UTC, Exact: d.exact["demo"], Expression: Expression{Event: "buy", From: "2026-11-08"}}
	notKnown := func(r OverlapRequest) {
		t.Helper()
		_, err1 := q.Overlap(ctx, r)
		_, err2 := q.Member(ctx, r, "u1")
		_, err3 := q.Members(ctx, r, 10, "")
		if code(err1) != "not_known" || code(err2) != "not_known" || code(err3) != "not_known" {
			t.Errorf("%v, %v, %v; want not_known", err1, err2, err3)
		}
	}
	notKnown(before)
	// What is known of one event does not hang on another.
	either := before
	either.Expression = Expression{Or: []Expression{{Event: "*", From: "2026-11-08"}, {Event: "buy", From: "2026-11-13"}}}
	if o, err := q.Overlap(ctx, either); err != nil || o.Users.Value != 2 {
		t.Errorf("%+v, %v; want 2 users", o, err)
	}
	// On the first whole day, what takes the days before is not known.
	a, err := q.Active(ctx, ActiveRequest{About: d.about("demo", "2026-11-12", "2026-11-15"), Event: "buy", Interval: period.Day})
	if err != nil {
		t.Fatal(err)
	}
	if r := a.Rows[0]; r.Active != nil || r.New != nil {
		t.Errorf("the day on which the sets began is %+v", r)
	}
	if r := a.Rows[1]; r.Active == nil || *r.Active != 0 || r.New == nil || r.Returning != nil || r.Dormant != nil || r.Rolling7 != nil || r.Stickiness != nil {
		t.Errorf("the first whole day is %+v", r)
	}
	// Named just now, before any event: nothing is known.
	d.exact["demo"] = []string{"*", "buy", "sell"}
	u, err = q.Users(ctx, Request{About: d.about("demo", "2026-11-08", "2026-11-15"), Event: "sell", Interval: period.Day, Method: Exact})
	if err != nil || u.Total.Exact != nil || u.Rows[0].Exact != nil || u.Since == nil {
		t.Errorf("%+v, %v of an event whose sets have not begun", u, err)
	}
	before.Exact, before.Expression.Event = d.exact["demo"], "sell"
	notKnown(before)
	if u, err = q.Users(ctx, Request{About: d.about("demo", "2026-11-08", "2026-11-11"), Event: "*", Interval: period.Day, Method: Exact}); err != nil || u.Total.Exact.Value != 1 {
		t.Errorf("%+v, %v of all events, which have sets since the beginning; want 1", u, err)
	}
}
