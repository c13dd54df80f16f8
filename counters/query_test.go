package counters

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/period"
	"github.com/rollcall/rollcall/internal/realtest"
)

func users(from, to int, t time.Time) []event.Event {
	var events []event.Event
	for i := from; i <= to; i++ {
		events = append(events, view(fmt.Sprintf("u%d", i), t))
	}
	return events
}

func TestHL02_UnionOfDays(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	d.write(users(1, 10000, at(t, "2026-11-28T10:00:00Z"))...)
	d.write(users(5001, 15000, at(t, "2026-11-29T10:00:00Z"))...)
	d.run()
	// The estimates of plain PFADD: Redis's own.
	d.want(CountsRequest{From: "2026-11-28", To: "2026-11-30"}, "2026-11-28 10000/9979, 2026-11-29 10000/10043, total 20000/15009")
	d.check()
}

func TestHL03_AnyOrderAnyNumberOfTimes(t *testing.T) {
	days := map[string][]string{"2026-11-23": {"a", "b"}, "2026-11-24": {"b", "c"}, "2026-11-25": {"c", "d"}}
	const d1, d2, d3 = "2026-11-23", "2026-11-24", "2026-11-25"
	for _, order := range [][]string{{d1, d2, d3}, {d1, d3, d2}, {d2, d1, d3}, {d2, d3, d1}, {d3, d1, d2}, {d3, d2, d1}} {
		d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
		for _, label := range order {
			for _, u := range days[label] {
				d.write(view(u, at(t, label+"T10:00:00Z")))
			}
			d.run()
		}
		d.write(view("x", at(t, "2026-11-16T10:00:00Z")), view("y", at(t, "2026-11-17T10:00:00Z")))
		d.write(view("old1", at(t, "2026-11-15T10:00:00Z")), view("old2", at(t, "2026-11-15T10:00:00Z")))
		d.run()
		for range 2 {
			d.want(CountsRequest{From: "2026-11-23", To: "2026-11-30", Interval: period.Week}, "2026-W48 6/4, total 6/4")
			// No old visitor gets into a week: nothing is ever merged into a stored key.
			d.want(CountsRequest{From: "2026-11-16", To: "2026-11-23", Interval: period.Week}, "2026-W47 2/2, total 2/2")
		}
		d.check()
	}
}

func TestHL04_ReplicaAnswers(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	d.write(users(1, 100, at(t, "2026-11-30T10:00:00Z"))...)
	d.run()
	replica := realtest.Redis(t)
	replica.ReplicaOf(d.server)
	replica.WaitInSync(d.server)
	rdb := replica.Client()
	if err := rdb.Set(context.Background(), "x", 1, 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "READONLY") {
		t.Fatalf("the replica takes writes: %v", err)
	}
	master := brief(d.must(CountsRequest{From: "2026-11-30", To: "2026-12-01"}))
	d.rdb = rdb
	for _, interval := range []period.Kind{period.Hour, period.Day, period.Week, period.Month} {
		c := d.must(CountsRequest{From: "2026-11-30", To: "2026-12-01", Interval: interval})
		if c.Total.PV != 100 || c.AsOf == nil {
			t.Errorf("%s from the replica: %s", interval, brief(c))
		}
	}
	d.want(CountsRequest{From: "2026-11-30", To: "2026-12-01"}, master)
}

func TestHL07_NoClashAndNoSilentDamage(t *testing.T) {
	ctx := context.Background()
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	when := at(t, "2026-11-30T10:00:00Z")
	for range 5 {
		d.write(event.Event{Name: "home:uv", Time: when.UnixMilli()})
	}
	d.write(event.Event{Name: "home", User: "u1", Time: when.UnixMilli()})
	d.run()
	// Two days: of a single sketch Redis may answer with the estimate that it keeps inside, and that one is right.
	r := CountsRequest{Event: "home:uv", From: "2026-11-29", To: "2026-12-01"}
	d.want(r, "2026-11-29 0/0, 2026-11-30 5/0, total 5/0")

	base := keyBase(shardOf(testShards, "demo", "home"), "demo")
	r.Event = "home"
	d.want(r, "2026-11-29 0/0, 2026-11-30 1/1, total 1/1")
	for name, hurt := range map[string]func(key string){
		"appended":     func(key string) { d.rdb.Append(ctx, key, "x") },
		"no sketch":    func(key string) { d.rdb.Set(ctx, key, "5", 0) },
		"another type": func(key string) { d.rdb.Del(ctx, key); d.rdb.HSet(ctx, key, "a", 1) },
	} {
		for _, key := range []string{uvDayKey(base, "home", "2026-11-30"), uvHourKey(base, "home", "2026-11-30T10:00+00:00")} {
			before, err := d.rdb.Dump(ctx, key).Result()
			if err != nil {
				t.Fatal(err)
			}
			hurt(key)
			q := r
			if strings.Contains(key, ":uvh:") {
				q.From, q.To, q.Interval = "2026-11-30T10:00:00Z", "2026-11-30T12:00:00Z", period.Hour
			}
			c, err := d.counts(q)
			if e := apperr.As(err); err == nil || e.Kind != apperr.Internal || e.Code != "damaged_sketch" {
				t.Errorf("%s %s: %+v, %v; want damaged_sketch", name, key, c, err)
			}
			if err := d.rdb.RestoreReplace(ctx, key, 0, before).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	d.want(r, "2026-11-29 0/0, 2026-11-30 1/1, total 1/1")
	d.rdb.HSet(ctx, pvKey(base, "home", "2026-11-30"), "10:00+00:00", "many")
	if _, err := d.counts(r); apperr.As(err).Code != "damaged_count" {
		t.Errorf("a count that is no number: %v, want damaged_count", err)
	}
}

// A counter above 2^53 is read digit for digit.
func TestRD11_CountsAbove53Bits(t *testing.T) {
	ctx := context.Background()
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	base := keyBase(shardOf(testShards, "demo", "page_view"), "demo")
	d.rdb.Set(ctx, totalKey(base, "page_view"), "9007199254740992", 0)
	d.rdb.HSet(ctx, pvKey(base, "page_view", "2026-11-30"), "10:00+00:00", "9007199254740992")
	d.write(view("u1", at(t, "2026-11-30T10:00:00Z")))
	d.run()
	c := d.must(CountsRequest{From: "2026-11-30", To: "2026-12-01"})
	if c.Total.PV != 9007199254740993 || c.Lifetime.PV != 9007199254740993 {
		t.Errorf("PV %d, lifetime %d; want 9007199254740993", c.Total.PV, c.Lifetime.PV)
	}
}

// Every key that one event of each kind makes is documented, lives as long as it should, and is one of few, whatever paths come in.
func TestRD08_KeysEnd(t *testing.T) {
	ctx := context.Background()
	d := newDriver(t, time.Now())
	d.shift = 0
	var patterns []*regexp.Regexp
	for _, k := range Keys {
		s := regexp.QuoteMeta(k.Pattern)
		s = regexp.MustCompile(`<[a-z]+>`).ReplaceAllString(strings.Replace(s, `\{SS\}`, `\{[0-9a-f]{2}\}`, 1), `.+?`)
		patterns = append(patterns, regexp.MustCompile("^"+s+"$"))
	}
	for _, name := range []string{"page_view", "$signin", "$makeup", "$score", "阅读"} {
		d.write(event.Event{Name: name, User: "u1", Value: "1", Time: d.clock.Now().UnixMilli()}, event.Event{Name: name, Time: d.clock.Now().UnixMilli()})
	}
	for range 20 {
		var events []event.Event
		for i := range 5000 {
			e := view("scanner", d.clock.Now())
			e.Props.Append("path", event.String, fmt.Sprintf("/random/%d/%d", len(d.journal), i))
			events = append(events, e)
		}
		d.write(events...)
	}
	d.run()
	keys := d.keys()
	for _, key := range keys {
		which := slices.IndexFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(key) })
		if which < 0 {
			t.Errorf("%s is not documented", key)
			continue
		}
		ttl := d.rdb.TTL(ctx, key).Val()
		switch doc := Keys[which].TTL; {
		case doc == "none" && ttl == -1:
		case doc != "none" && ttl > 0:
			var days int
			if _, err := fmt.Sscanf(doc, "%d d", &days); err != nil || ttl > time.Duration(days+3)*day || ttl < time.Duration(days-1)*day {
				t.Errorf("%s has TTL %v, documented is %s after its period", key, ttl, doc)
			}
		default:
			t.Errorf("%s has TTL %v, documented is %s", key, ttl, doc)
		}
	}
	if want := 6 * 4; len(keys) != want { // 5 names and *: total, PV, UV of the day, UV of the hour
		t.Errorf("%d keys, want %d: %q", len(keys), want, keys)
	}
}

// An hour's sketch goes before its PV: then UV is unknown, never 0.
func TestExpiredSketches(t *testing.T) {
	d := newDriver(t, at(t, "2026-10-01T12:00:00Z"))
	d.write(view("u1", at(t, "2026-10-01T10:30:00Z")), view("u2", at(t, "2026-10-01T11:30:00Z")))
	d.run()
	hours := CountsRequest{From: "2026-10-01T09:00:00Z", To: "2026-10-01T12:00:00Z", Interval: period.Hour}
	fresh := "2026-10-01T09:00+00:00 0/0, 2026-10-01T10:00+00:00 1/1, 2026-10-01T11:00+00:00 1/1, total 2/2"
	d.want(hours, fresh)
	d.clock.Add(60 * day)
	d.want(hours, fresh) // still there
	base := keyBase(shardOf(testShards, "demo", "page_view"), "demo")
	d.rdb.Del(context.Background(), uvHourKey(base, "page_view", "2026-10-01T10:00+00:00"))
	d.want(hours, "2026-10-01T09:00+00:00 0/0, 2026-10-01T10:00+00:00 1/expired, 2026-10-01T11:00+00:00 1/1, total 2/expired")
	d.want(CountsRequest{From: "2026-10-01", To: "2026-10-02"}, "2026-10-01 2/2, total 2/2")
	d.want(CountsRequest{From: "2026-09-30", To: "2026-10-01T11:00:00Z", Interval: period.Week}, "2026-W40 1/expired, total 1/expired")
	b, err := json.Marshal(d.must(hours).Rows[1])
	if err != nil || !strings.Contains(string(b), `"uv":null,"expired":true`) {
		t.Errorf("%s, %v; want uv null and expired", b, err)
	}
	var csv bytes.Buffer
	if err := d.must(hours).WriteCSV(&csv); err != nil || !strings.Contains(csv.String(), "2026-10-01T10:00+00:00,2026-10-01T10:00:00Z,2026-10-01T11:00:00Z,1,,,,true,\n") {
		t.Errorf("CSV %v:\n%s", err, &csv)
	}
}

func TestCountsJSONAndCSV(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	d.zones["demo"] = zone(t, "Asia/Shanghai")
	d.write(view("u1", at(t, "2026-11-29T10:00:00+08:00")), view("u2", at(t, "2026-11-30T10:00:00+08:00")), view("u1", at(t, "2026-11-30T10:00:00+08:00")))
	d.run()
	c := d.must(CountsRequest{From: "2026-11-28", To: "2026-12-01"})
	got, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want := `{
 "query": {
  "project": "demo",
  "event": "page_view",
  "from": "2026-11-28T00:00:00+08:00",
  "to": "2026-12-01T00:00:00+08:00",
  "interval": "day"
 },
 "zone": "Asia/Shanghai",
 "as_of": "2026-11-30T12:00:00Z",
 "rows": [
  {
   "label": "2026-11-28",
   "from": "2026-11-28T00:00:00+08:00",
   "to": "2026-11-29T00:00:00+08:00",
   "pv": 0,
   "uv": {
    "value": 0,
    "method": "hll",
    "error": 0.0081
   },
   "complete": true
  },
  {
   "label": "2026-11-29",
   "from": "2026-11-29T00:00:00+08:00",
   "to": "2026-11-30T00:00:00+08:00",
   "pv": 1,
   "uv": {
    "value": 1,
    "method": "hll",
    "error": 0.0081
   },
   "complete": true,
   "restated": {
    "at": "2026-11-30T12:00:00Z",
    "changes": 1
   }
  },
  {
   "label": "2026-11-30",
   "from": "2026-11-30T00:00:00+08:00",
   "to": "2026-12-01T00:00:00+08:00",
   "pv": 2,
   "uv": {
    "value": 2,
    "method": "hll",
    "error": 0.0081
   },
   "complete": false
  }
 ],
 "total": {
  "pv": 3,
  "uv": {
   "value": 2,
   "method": "hll",
   "error": 0.0081
  },
  "complete": false,
  "restated": {
   "at": "2026-11-30T12:00:00Z",
   "changes": 1
  }
 },
 "lifetime": {
  "pv": 3
 },
 "kept": {
  "hours_since": "2026-10-16T12:00:00Z",
  "days_since": "2025-10-26T12:00:00Z"
 }
}`
	if string(got) != want {
		t.Errorf("JSON is\n%s\nwant\n%s", got, want)
	}
	var csv bytes.Buffer
	if err := c.WriteCSV(&csv); err != nil {
		t.Fatal(err)
	}
	want = `label,from,to,pv,uv,uv_method,uv_error,complete,restated
2026-11-28,2026-11-28T00:00:00+08:00,2026-11-29T00:00:00+08:00,0,0,hll,0.0081,true,
2026-11-29,2026-11-29T00:00:00+08:00,2026-11-30T00:00:00+08:00,1,1,hll,0.0081,true,2026-11-30T12:00:00Z
2026-11-30,2026-11-30T00:00:00+08:00,2026-12-01T00:00:00+08:00,2,2,hll,0.0081,false,
`
	if csv.String() != want {
		t.Errorf("CSV is\n%s\nwant\n%s", csv.String(), want)
	}
}

// A late event marks its day, and the rows that have the day; what comes in time and what is imported marks nothing.
func TestRestated(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-29T23:59:59Z"))
	d.write(view("u1", d.clock.Now()))
	d.clock.Set(at(t, "2026-12-02T08:00:00Z"))
	old := view("u1", at(t, "2026-11-28T10:00:00Z"))
	old.Historical = true
	d.write(old)
	d.run()
	r := CountsRequest{From: "2026-11-28", To: "2026-12-03"}
	if c := d.must(r); c.Total.Restated != nil || c.Total.PV != 2 {
		t.Errorf("restated %+v without a late event, PV %d", c.Total.Restated, c.Total.PV)
	}
	d.write(view("u1", at(t, "2026-11-29T10:00:00Z")), view("u2", at(t, "2026-11-29T11:00:00Z")))
	d.clock.Add(time.Hour)
	d.write(view("u2", at(t, "2026-11-30T11:00:00Z")), view("u2", d.clock.Now()))
	d.run()
	want := map[string]Restated{
		"2026-11-29": {at(t, "2026-12-02T08:00:00Z"), 2}, "2026-11-30": {at(t, "2026-12-02T09:00:00Z"), 1}, "2026-W48": {at(t, "2026-12-02T08:00:00Z"), 2},
		"2026-W49": {at(t, "2026-12-02T09:00:00Z"), 1},
	}
	for _, interval := range []period.Kind{period.Day, period.Week} {
		r.Interval = interval
		c := d.must(r)
		for _, row := range c.Rows {
			w, is := want[row.Label]
			if (row.Restated != nil) != is || is && *row.Restated != w {
				t.Errorf("%s is restated %+v, want %+v", row.Label, row.Restated, w)
			}
		}
		if c.Total.PV != 6 || c.Total.Restated == nil || *c.Total.Restated != (Restated{at(t, "2026-12-02T09:00:00Z"), 3}) {
			t.Errorf("total %d, restated %+v", c.Total.PV, c.Total.Restated)
		}
	}
	d.check()
}

func TestCountsRefuses(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	f := func(r CountsRequest, code string) {
		t.Helper()
		var e *apperr.Error
		if c, err := d.counts(r); !errors.As(err, &e) || e.Kind != apperr.Invalid || e.Code != code {
			t.Errorf("%+v: %v, %v; want %s", r, c, err, code)
		}
	}
	f(CountsRequest{}, "bad_range")
	f(CountsRequest{To: "2026-11-30"}, "bad_range")
	f(CountsRequest{Period: "today", From: "2026-11-30"}, "bad_range")
	f(CountsRequest{Period: "fortnight"}, "bad_period")
	f(CountsRequest{From: "2026-11-30", To: "2026-11-30"}, "empty_range")
	f(CountsRequest{From: "2027-01-01"}, "empty_range")
	f(CountsRequest{From: "yesterday", To: "2026-11-30"}, "bad_time")
	f(CountsRequest{From: "2026-11-29", To: "2026-11-30T10:00:01Z"}, "not_on_hour")
	f(CountsRequest{From: "2026-11-29", To: "2026-11-30", Event: strings.Repeat("x", 65)}, "bad_event")
	f(CountsRequest{From: "2026-01-01", To: "2026-03-26", Interval: period.Hour}, "too_many_buckets")
	f(CountsRequest{From: "2020-01-01", To: "2023-01-06", Interval: period.Month}, "range_too_long")
	f(CountsRequest{From: "1970-01-01", To: "9998-01-01", Interval: period.Month}, "too_many_buckets")
	// The largest that are answered.
	d.want(CountsRequest{From: "2020-01-01", To: "2023-01-05", Interval: period.Month, Event: "none"}, strings.TrimSuffix(func() string {
		s := ""
		for m := range 37 {
			s += time.Date(2020, time.Month(1+m), 1, 0, 0, 0, 0, time.UTC).Format("2006-01") + " 0/0, "
		}
		return s
	}(), ", ")+", total 0/0")
	if c := d.must(CountsRequest{From: "2026-01-01", To: "2026-03-25", Interval: period.Hour}); len(c.Rows) != 83*24 || c.AsOf != nil || c.Total.Complete {
		t.Errorf("%d rows, as of %v", len(c.Rows), c.AsOf)
	}
}

func TestCountsWithoutRedis(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	d.server.Kill()
	_, err := d.counts(CountsRequest{Period: "today"})
	if e := apperr.As(err); e.Kind != apperr.Unavailable || e.Code != "redis_unavailable" || e.RetryAfter <= 0 {
		t.Errorf("%v, want redis_unavailable", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = NewQuery(QueryOptions{Redis: d.rdb, Shards: testShards, Clock: d.clock}).Counts(ctx,
		CountsRequest{Project: "demo", Zone: time.UTC, Event: Any, Period: "today", Interval: period.Day})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want canceled", err)
	}
}

// Random ranges over random events, against counting one by one. UV is compared with a fresh sketch of the same users.
func TestCountsModel(t *testing.T) {
	ctx := context.Background()
	rnd := rand.New(rand.NewPCG(5, 5))
	d := newDriver(t, at(t, "2026-11-01T20:00:00Z"))
	d.randomRecords(rnd, 250)
	d.run()
	count := func(project, name string, from, to time.Time) string {
		var pv int64
		d.rdb.Del(ctx, "scratch")
		pipe := d.rdb.Pipeline()
		for _, r := range d.journal {
			for _, e := range r.Events {
				x := time.UnixMilli(e.Time)
				if e.Project != project || (name != Any && e.Name != name) || x.Before(from) || !x.Before(to) {
					continue
				}
				pv++
				if e.User != "" {
					pipe.PFAdd(ctx, "scratch", e.User)
				}
			}
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		uv, err := d.rdb.PFCount(ctx, "scratch").Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		return fmt.Sprintf("%d/%d", pv, uv)
	}
	for range 60 {
		project := []string{"demo", "two"}[rnd.IntN(2)]
		name := []string{Any, "page_view", "buy", "阅读", "home:uv"}[rnd.IntN(5)]
		from := period.Of(period.Hour, at(t, "2026-10-31T00:00:00Z").Add(time.Duration(rnd.IntN(60))*time.Hour), d.zones[project]).From
		to := period.Of(period.Hour, from.Add(time.Duration(2+rnd.IntN(60))*time.Hour), d.zones[project]).From
		r := CountsRequest{Project: project, Event: name, From: from.Format(time.RFC3339), To: to.Format(time.RFC3339), Interval: period.Hour + period.Kind(rnd.IntN(4))}
		c := d.must(r)
		end := from
		var want []string
		for _, row := range c.Rows {
			if !row.From.Equal(end) {
				t.Fatalf("%+v: a row begins at %v, the one before ended at %v", r, row.From, end)
			}
			end = row.To
			want = append(want, row.Label+" "+count(project, name, row.From, row.To))
		}
		if !end.Equal(to) {
			t.Fatalf("%+v: the last row ends at %v", r, end)
		}
		d.want(r, strings.Join(append(want, "total "+count(project, name, from, to)), ", "))
	}
}
