package breakdown

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/memo"
	"github.com/rollcall/rollcall/internal/period"
	"github.com/rollcall/rollcall/internal/projection/drive"
	"github.com/rollcall/rollcall/internal/realtest"
)

const (
	testShards = 4
	shift      = 40 * 365 * 24 * 3600 // seconds: the tests have their own dates, Redis has the machine's
)

func at(t testing.TB, s string) time.Time {
	t.Helper()
	x, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return x.UTC()
}

type driver struct {
	*drive.Driver
	t     testing.TB
	clock *clock.Manual
	p     *Projection
	zones map[string]*time.Location
	specs map[string][]Spec
}

func newDriver(t testing.TB, now time.Time, specs ...Spec) *driver {
	d := &driver{t: t, clock: clock.NewManual(now), zones: map[string]*time.Location{}, specs: map[string][]Spec{"demo": specs}}
	d.p = NewProjection(Options{
		Zone:  func(p string) *time.Location { return d.zones[p] },
		Specs: func(p string) []Spec { return d.specs[p] },
		Clock: d.clock,
	})
	d.Driver = drive.New(t, realtest.Redis(t).Client(), testShards, d.p)
	d.Shift = shift
	return d
}

func (d *driver) zone(project string) *time.Location {
	if loc := d.zones[project]; loc != nil {
		return loc
	}
	return time.UTC
}

func (d *driver) write(events ...event.Event) { d.Write(d.clock.Now().UnixMilli(), events...) }

// view is an event with props, given as key, value.
func view(user string, t time.Time, props ...string) event.Event {
	e := event.Event{Name: "page_view", User: user, Time: t.UnixMilli()}
	for i := 0; i < len(props); i += 2 {
		e.Props.Append(props[i], event.String, props[i+1])
	}
	return e
}

func (d *driver) ask(r Request) (*Breakdown, error) {
	if r.Project == "" {
		r.Project = "demo"
	}
	if r.Event == "" {
		r.Event = "page_view"
	}
	if r.Limit == 0 {
		r.Limit = 10
	}
	r.Zone, r.Specs = d.zone(r.Project), d.specs[r.Project]
	q := NewQuery(QueryOptions{Redis: d.RDB, Shards: testShards, Clock: d.clock, Memo: memo.New(d.clock)})
	return q.Breakdown(context.Background(), r)
}

func (d *driver) must(r Request) *Breakdown {
	d.t.Helper()
	b, err := d.ask(r)
	if err != nil {
		d.t.Fatal(err)
	}
	return b
}

// brief is a row as "pv: value pv/uv, …; rest n; other pv/uv; none pv/uv".
func brief(r *Row) string {
	one := func(v *Value) string {
		uv := "?"
		if v.UV != nil {
			uv = strconv.FormatInt(v.UV.Value, 10)
		}
		return fmt.Sprintf("%d/%s", v.PV, uv)
	}
	var list []string
	for i := range r.Values {
		list = append(list, r.Values[i].Value+" "+one(&r.Values[i]))
	}
	s := fmt.Sprintf("%d: %s; rest %d", r.PV, strings.Join(list, ", "), r.Rest)
	if r.Other != nil {
		s += "; other " + one(r.Other)
	}
	if r.None != nil {
		s += "; none " + one(r.None)
	}
	return s
}

func (d *driver) want(r Request, want string) {
	d.t.Helper()
	if got := brief(&d.must(r).Total); got != want {
		d.t.Errorf("%+v:\n got %s\nwant %s", r, got, want)
	}
}

// Batches are cut at random, half of them reach only some shards and begin a new epoch: PV must be the model's all the same, and the sketches
// what Redis makes of the same users.
func TestModel(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 5))
			d := newDriver(t, at(t, "2026-10-30T20:00:00Z"),
				Spec{Event: "page_view", Props: []string{"page", "channel"}, Top: 12}, Spec{Event: counters.Any, Props: []string{"channel"}})
			ny, err := time.LoadLocation("America/New_York")
			if err != nil {
				t.Fatal(err)
			}
			d.zones["demo"] = ny
			d.specs["two"] = []Spec{{Event: "buy", Props: []string{"a:b"}}}
			for range 150 {
				var events []event.Event
				for range rnd.IntN(80) {
					e := view(fmt.Sprint("u", rnd.IntN(1+rnd.IntN(300))), d.clock.Now().Add(-time.Duration(rnd.ExpFloat64()*float64(9*time.Hour))))
					e.Project = []string{"demo", "demo", "two"}[rnd.IntN(3)]
					e.Name = []string{"page_view", "page_view", "buy"}[rnd.IntN(3)]
					e.Bot = rnd.IntN(20) == 0
					if rnd.IntN(5) > 0 {
						e.Props.Append("page", event.String, fmt.Sprint("/p", rnd.IntN(1+rnd.IntN(30))))
					}
					if rnd.IntN(3) > 0 {
						e.Props.Append("channel", event.String, []string{"ios", "web", "other", "none", "=x", ""}[rnd.IntN(6)])
					}
					if rnd.IntN(3) > 0 {
						e.Props.Append("a:b", event.Number, fmt.Sprint(rnd.IntN(4)))
					}
					if rnd.IntN(9) == 0 {
						e.User = ""
					}
					events = append(events, e)
				}
				d.write(events...)
				d.clock.Add(time.Duration(rnd.IntN(40)) * time.Minute)
			}
			d.RunHurt(rnd, 11)
			d.check()
			d.Restart()
			d.Run(100)
			d.check()
		})
	}
}

// check compares all of Redis with a model made from the whole journal.
func (d *driver) check() {
	d.t.Helper()
	ctx := context.Background()
	keep := Keep{}.orDefault()
	pv, users, expiry, admitted := map[string]map[string]int64{}, map[string]map[string]bool{}, map[string]int64{}, map[string]map[string]bool{}
	for _, r := range d.Journal {
		for _, e := range r.Events {
			for _, s := range d.specs[e.Project] {
				if e.Bot || s.Event != counters.Any && s.Event != e.Name {
					continue
				}
				loc := d.zone(e.Project)
				day, h := period.Of(period.Day, time.UnixMilli(e.Time), loc), period.Of(period.Hour, time.UnixMilli(e.Time), loc)
				metric := metricOf(s.Event)
				base := keyBase(shardOf(testShards, e.Project, metric), e.Project)
				live := func(key string, to time.Time, keep time.Duration) {
					ms := max(to.UnixMilli(), r.Received)
					expiry[key] = max(expiry[key], ((ms+86_400_000-1)/86_400_000*86_400_000+keep.Milliseconds())/1000)
				}
				for _, prop := range s.Props {
					p, has := e.Props.Get(prop)
					field, name := fieldOf(p, has), strings.ReplaceAll(prop, ":", "%3a")
					dk, hk := dayKey(base, metric, name, day.Label), hourKey(base, metric, name, h.Label)
					if admitted[dk] == nil {
						admitted[dk] = map[string]bool{}
					}
					top := cmp.Or(s.Top, DefaultTop)
					if field != none && !admitted[dk][field] {
						if len(admitted[dk]) < top {
							admitted[dk][field] = true
						} else {
							field = other
						}
					}
					for _, k := range []string{dk, hk} {
						if pv[k] == nil {
							pv[k] = map[string]int64{}
						}
						pv[k][field]++
					}
					live(dk, day.To, keep.Days)
					live(hk, h.To, keep.Hours)
					if e.User != "" {
						uk := uvKey(base, metric, name, day.Label, field)
						if users[uk] == nil {
							users[uk] = map[string]bool{}
						}
						users[uk][e.User] = true
						live(uk, day.To, keep.Users)
					}
				}
			}
		}
	}
	keys, err := d.RDB.Keys(ctx, "rc:{*}:breakdown:*").Result()
	if err != nil {
		d.t.Fatal(err)
	}
	keys = slices.DeleteFunc(keys, func(k string) bool { return strings.HasSuffix(k, ":since") })
	if len(keys) != len(pv)+len(users) {
		d.t.Errorf("%d keys, want %d", len(keys), len(pv)+len(users))
	}
	for _, key := range keys {
		switch {
		case pv[key] != nil:
			got := map[string]int64{}
			for f, s := range d.RDB.HGetAll(ctx, key).Val() {
				got[f], _ = strconv.ParseInt(s, 10, 64)
			}
			if !maps.Equal(got, pv[key]) {
				d.t.Fatalf("%s has %v, want %v", key, got, pv[key])
			}
		case users[key] != nil:
			var all []any
			for u := range users[key] {
				all = append(all, u)
			}
			d.RDB.Del(ctx, "model")
			d.RDB.PFAdd(ctx, "model", all...)
			if got, want := d.RDB.PFCount(ctx, key).Val(), d.RDB.PFCount(ctx, "model").Val(); got != want {
				d.t.Fatalf("%s has %d users, want %d", key, got, want)
			}
			d.RDB.Del(ctx, "model")
		default:
			d.t.Fatalf("%s is not in the model", key)
		}
		if got := int64(d.RDB.ExpireTime(ctx, key).Val()/time.Second) - shift; got != expiry[key] {
			d.t.Fatalf("%s goes at %d, want %d", key, got, expiry[key])
		}
	}
}

func TestQuestions(t *testing.T) {
	d := newDriver(t, at(t, "2026-12-03T12:00:00Z"), Spec{Event: "page_view", Props: []string{"page"}})
	one, two := at(t, "2026-12-01T10:00:00Z"), at(t, "2026-12-02T11:30:00Z")
	for range 3 {
		d.write(view("u1", one, "page", "/a"), view("u2", one, "page", "/a"), view("u3", two, "page", "/b"))
	}
	d.write(view("u1", two, "page", "/a"), view("u9", two), view("", two, "page", "/c"))
	d.clock.Add(time.Hour)
	d.write(view("u1", d.clock.Now(), "page", "/b"))
	d.Run(2)
	r := Request{Prop: "page", From: "2026-12-01", To: "2026-12-03"}
	d.want(r, "12: /a 7/2, /b 3/1, /c 1/0; rest 0; none 1/1")
	r.Limit = 1
	d.want(r, "12: /a 7/2; rest 4; none 1/1")
	r.Limit, r.Interval = 10, period.Day
	b := d.must(r)
	var got []string
	for i := range b.Rows {
		got = append(got, b.Rows[i].Label+" "+brief(&b.Rows[i]))
	}
	if want := []string{"2026-12-01 6: /a 6/2; rest 0", "2026-12-02 6: /b 3/1, /a 1/1, /c 1/0; rest 0; none 1/1"}; !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
	if b.Since != nil || !b.Total.Complete || b.Rows[1].Values[0].Share != 0.5 {
		t.Errorf("since %v, total %+v", b.Since, b.Total)
	}
	// Hours have PV alone.
	d.want(Request{Prop: "page", From: "2026-12-02T11:00:00Z", To: "2026-12-02T12:00:00Z"}, "6: /b 3/?, /a 1/?, /c 1/?; rest 0; none 1/?")
	d.want(Request{Prop: "page", From: "2026-12-01", To: "2026-12-02T11:00:00Z"}, "6: /a 6/?; rest 0")
	b = d.must(Request{Prop: "page", From: "2026-12-02", To: "2026-12-03", Interval: period.Hour})
	if len(b.Rows) != 24 || brief(&b.Rows[11]) != "6: /b 3/?, /a 1/?, /c 1/?; rest 0; none 1/?" || brief(&b.Rows[12]) != "0: ; rest 0" {
		t.Errorf("%d hours, the 12th %s", len(b.Rows), brief(&b.Rows[11]))
	}
}

func TestRefusals(t *testing.T) {
	d := newDriver(t, at(t, "2026-12-03T12:00:00Z"), Spec{Event: "page_view", Props: []string{"page"}})
	for want, r := range map[string]Request{
		"not_broken_down":  {Prop: "channel", Period: "7d"},
		"bad_limit":        {Prop: "page", Period: "7d", Limit: MaxLimit + 1},
		"bad_event":        {Prop: "page", Period: "7d", Event: strings.Repeat("x", 65)},
		"empty_range":      {Prop: "page", From: "2026-12-01", To: "2026-12-01"},
		"not_on_hour":      {Prop: "page", From: "2026-12-01T00:30:00Z"},
		"range_too_long":   {Prop: "page", From: "2016-12-01"},
		"too_many_buckets": {Prop: "page", From: "2026-10-01", Interval: period.Hour},
	} {
		if _, err := d.ask(r); err == nil || apperr.As(err).Code != want {
			t.Errorf("%+v: %v, want %s", r, err, want)
		}
	}
	d.write(view("u1", at(t, "2026-12-01T10:00:00Z"), "page", "/a"))
	d.Run(1)
	key := dayKey(keyBase(shardOf(testShards, "demo", "page_view"), "demo"), "page_view", "page", "2026-12-01")
	d.RDB.HSet(context.Background(), key, "=/a", "many")
	if _, err := d.ask(Request{Prop: "page", Period: "7d"}); err == nil || apperr.As(err).Code != "damaged_count" {
		t.Errorf("%v of a damaged count", err)
	}
}

// A prop that is named later is not known on the days before.
func TestRowsBeforeAreNotKnown(t *testing.T) {
	d := newDriver(t, at(t, "2026-12-01T12:00:00Z"))
	d.write(view("u1", d.clock.Now(), "page", "/a"))
	d.Run(1)
	d.specs["demo"] = []Spec{{Event: "page_view", Props: []string{"page"}}}
	d.clock.Set(at(t, "2026-12-03T12:00:00Z"))
	d.write(view("u1", d.clock.Now(), "page", "/a"))
	d.Run(1)
	b := d.must(Request{Prop: "page", From: "2026-12-01", To: "2026-12-05", Interval: period.Day})
	for i, known := range []bool{false, false, false, true} {
		if b.Rows[i].Known != known {
			t.Errorf("%s known: %v", b.Rows[i].Label, b.Rows[i].Known)
		}
	}
	if b.Since == nil || b.Total.Known {
		t.Errorf("since %v, total known: %v", b.Since, b.Total.Known)
	}
}

// A prop that was named just now is not known to have had no values.
func TestAPropNamedJustNowIsNotKnown(t *testing.T) {
	d := newDriver(t, at(t, "2026-12-03T12:00:00Z"))
	d.specs["demo"] = []Spec{{Event: "page_view", Props: []string{"page"}}}
	if b := d.must(Request{Prop: "page", Period: "7d"}); !b.Total.Known || b.Since != nil {
		t.Errorf("%+v of a project without events", b)
	}
	d.specs["demo"] = nil
	d.write(view("u1", at(t, "2026-12-02T10:00:00Z"), "page", "/a"))
	d.Run(1)
	d.specs["demo"] = []Spec{{Event: "page_view", Props: []string{"page"}}}
	if b := d.must(Request{Prop: "page", Period: "7d"}); b.Total.Known || b.Since == nil {
		t.Errorf("%+v of a prop that has not begun", b)
	}
}

// Hours that are no longer kept are not taken for hours without events.
func TestExpiredHours(t *testing.T) {
	ctx := context.Background()
	d := newDriver(t, at(t, "2026-12-03T12:00:00Z"), Spec{Event: "page_view", Props: []string{"page"}})
	for _, s := range []string{"2026-10-01T10:00:00Z", "2026-10-01T20:00:00Z", "2026-10-02T10:00:00Z"} {
		d.write(view("u1", at(t, s), "page", "/a"))
	}
	d.Run(10)
	r := Request{Prop: "page", From: "2026-10-01T05:00:00Z", To: "2026-10-03", Interval: period.Day}
	if b := d.must(r); b.Total.PV != 3 || b.Total.Expired { // received today, so all is there; hours without events look the same
		t.Errorf("%+v", b.Total)
	}
	d.RDB.Del(ctx, hourKey(keyBase(shardOf(testShards, "demo", "page_view"), "demo"), "page_view", "page", "2026-10-01T20:00+00:00"))
	b := d.must(r)
	if !b.Total.Expired || !b.Rows[0].Expired || b.Rows[1].Expired || b.Rows[1].PV != 1 || b.Total.PV != 0 {
		t.Errorf("%+v", b)
	}
	if b := d.must(Request{Prop: "page", From: "2026-10-01", To: "2026-10-03"}); b.Total.PV != 3 || b.Total.Expired {
		t.Errorf("whole days: %+v", b.Total)
	}
}

// 100,000 pages on a day: the keys and their fields are bounded, all period keys go some day, and nothing is missing in the sum.
func TestRD08_ScannersDoNotFillTheMemory(t *testing.T) {
	ctx := context.Background()
	d := newDriver(t, at(t, "2026-12-01T12:00:00Z"), Spec{Event: "page_view", Props: []string{"page"}, Top: 100})
	d.write(view("u1", d.clock.Now(), "page", "/home"))
	d.Run(1)
	n := 0
	for range 20 {
		var events []event.Event
		for range 5000 {
			n++
			events = append(events, view(fmt.Sprint("u", n%7), d.clock.Now(), "page", fmt.Sprint("/wp-", n)))
		}
		d.write(append(events, view("u2", d.clock.Now(), "page", "/home"))...)
		d.Run(1)
	}
	keys := d.RDB.Keys(ctx, "rc:{*}:breakdown:*").Val()
	if len(keys) > 104 {
		t.Errorf("%d keys after 100,000 pages", len(keys))
	}
	for _, key := range keys {
		if ttl := d.RDB.TTL(ctx, key).Val(); ttl < time.Second && !strings.HasSuffix(key, ":since") {
			t.Errorf("%s has TTL %v", key, ttl)
		}
	}
	b := d.must(Request{Prop: "page", Period: "today", Limit: 1})
	if b.Total.PV != 100_021 || b.Total.Values[0].Value != "/home" || b.Total.Values[0].PV != 21 || b.Total.Values[0].PV+b.Total.Rest+b.Total.Other.PV != 100_021 {
		t.Errorf("%s", brief(&b.Total))
	}
	if uv := b.Total.Other.UV.Value; uv != 7 {
		t.Errorf("%d users of (other), want 7", uv)
	}
}

// Names and values that could build each other's keys do not; a client's "other" is not ours.
func TestHL07_NamesAndValuesAreApart(t *testing.T) {
	d := newDriver(t, at(t, "2026-12-01T12:00:00Z"),
		Spec{Event: "home", Props: []string{"uv", "uv:x", "}{"}}, Spec{Event: "home:uv", Props: []string{"x", "uv"}})
	names := []struct{ event, prop, value string }{
		{"home", "uv", "x:2026-12-01"}, {"home", "uv:x", "2026-12-01"}, {"home:uv", "x", "other"}, {"home:uv", "uv", "none"}, {"home", "}{", "{}"},
		{"home", "uv", strings.Repeat("long", 200)}, {"home", "uv", strings.Repeat("long", 200) + "er"},
	}
	for i, n := range names {
		for u := range i + 1 {
			e := view(fmt.Sprint("u", u), d.clock.Now(), n.prop, n.value)
			e.Name = n.event
			d.write(e)
		}
	}
	d.Run(3)
	for i, n := range names {
		b := d.must(Request{Event: n.event, Prop: n.prop, Period: "today"})
		found := false
		for _, v := range b.Total.Values {
			if v.Value == n.value {
				found = v.PV == int64(i+1) && v.UV.Value == int64(i+1)
			}
		}
		if !found {
			t.Errorf("%v: %s", n, brief(&b.Total))
		}
	}
}

func TestRP01_RP05_CellsOfVisitors(t *testing.T) {
	d := newDriver(t, at(t, "2026-12-01T12:00:00Z"), Spec{Event: "page_view", Props: []string{"ref"}})
	values := []string{
		"=1+1", "+1+1", "-cmd", "@sum", "\t=1", "\r=1", "＝1+1", `a",=1+1,"b`, `a"b`, "c,d", "two\nlines", " lead", "007", "1e5", "",
	}
	for _, v := range values {
		d.write(view("u1", d.clock.Now(), "ref", v))
	}
	d.Run(5)
	b := d.must(Request{Prop: "ref", Period: "today", Limit: 100})
	raw := map[string]bool{}
	for _, v := range b.Total.Values {
		raw[v.Value] = true
	}
	var out bytes.Buffer
	if err := b.WriteCSV(&out); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&out).ReadAll()
	if err != nil || len(lines) != len(values)+1 {
		t.Fatalf("%d lines, %v", len(lines), err)
	}
	cells := map[string]bool{}
	for _, l := range lines[1:] {
		cells[l[4]] = true
	}
	for i, v := range values {
		cell := v
		if i < 7 {
			cell = "'" + v
		}
		cell = strings.ReplaceAll(cell, "\r\n", "\n")
		if !raw[v] || !cells[cell] {
			t.Errorf("%q: in JSON %v, as the cell %q %v", v, raw[v], cell, cells[cell])
		}
	}
}
