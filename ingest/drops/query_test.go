package drops

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/projection"
	"github.com/rollcall/rollcall/internal/realtest"
)

func (d *driver) want(r Request, want string) {
	d.t.Helper()
	if got := brief(d.must(r)); got != want {
		d.t.Errorf("drops of %+v:\n got %s\nwant %s", r, got, want)
	}
}

func (d *driver) refused(r Request, kind apperr.Kind, code string) {
	d.t.Helper()
	a, err := d.drops(r)
	var e *apperr.Error
	if !errors.As(err, &e) || e.Kind != kind || e.Code != code {
		d.t.Errorf("drops of %+v: %v, %v; want %s", r, a != nil, err, code)
	}
}

// send writes what a request brings at a time.
func (d *driver) send(when string, events, duplicates int, rejected ...string) {
	d.t.Helper()
	d.clock.Set(at(d.t, when))
	d.write(d.chunk(events, duplicates, rejected...))
}

func TestMinutesHoursDays(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T00:00:00Z"))
	d.zone("demo", "Asia/Kolkata") // its hours begin at half past
	d.send("2026-11-30T18:29:59Z", 3, 1)
	d.send("2026-11-30T18:30:00Z", 2, 0, "too_late", "too_late", "bad_user")
	d.send("2026-11-30T18:30:59Z", 5, 5)
	bot := d.chunk(4, 1, "bad_user")
	bot.Bot = true
	d.write(bot)
	d.send("2026-11-30T19:29:00Z", 1, 0)
	d.send("2026-11-30T19:31:00Z", 0, 0, "malformed")
	d.run()

	total := "total 20=5+7+3 bad_user:2 malformed:1 too_late:2"
	d.want(Request{Period: "2h", Interval: "minute"},
		"2026-11-30T23:59+05:30 3=2+1+0, 2026-12-01T00:00+05:30 15=2+6+3 bad_user:2 too_late:2, "+
			"2026-12-01T00:59+05:30 1=1+0+0, 2026-12-01T01:01+05:30 1=0+0+0 malformed:1, "+total)
	hours := "2026-11-30T23:00+05:30 3=2+1+0, 2026-12-01T00:00+05:30 16=3+6+3 bad_user:2 too_late:2, 2026-12-01T01:00+05:30 1=0+0+0 malformed:1, "
	d.want(Request{From: "2026-11-30", To: "2026-12-02", Interval: "hour"}, hours+total)
	d.want(Request{Period: "2h", Interval: "hour"}, hours+total)
	d.want(Request{Period: "2d", Interval: "day"}, "2026-11-30 3=2+1+0, 2026-12-01 17=3+6+3 bad_user:2 malformed:1 too_late:2, "+total)
	d.want(Request{Period: "yesterday"}, "2026-11-30T23:00+05:30 3=2+1+0, total 3=2+1+0")
	d.want(Request{Period: "1m"}, "2026-12-01T01:01+05:30 1=0+0+0 malformed:1, total 1=0+0+0 malformed:1")
	// The edges of a range cut days.
	d.want(Request{From: "2026-11-30T18:30:00Z", To: "2026-11-30T19:30:00Z", Interval: "day"}, "2026-12-01 16=3+6+3 bad_user:2 too_late:2, total 16=3+6+3 bad_user:2 too_late:2")
	d.want(Request{Project: "other", Period: "2h"}, "total 0=0+0+0")
	d.check()
}

// The day on which the clock goes back has two hours that are called 01:00.
func TestTwoHoursOfOneName(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-01T00:00:00Z"))
	d.zone("demo", "America/New_York")
	d.send("2026-11-01T05:30:00Z", 1, 0)
	d.send("2026-11-01T06:30:00Z", 2, 0)
	d.send("2026-11-02T04:59:00Z", 4, 0)
	d.run()
	d.want(Request{From: "2026-11-01", To: "2026-11-02", Interval: "hour"},
		"2026-11-01T01:00-04:00 1=1+0+0, 2026-11-01T01:00-05:00 2=2+0+0, 2026-11-01T23:00-05:00 4=4+0+0, total 7=7+0+0")
	a := d.must(Request{From: "2026-11-01", To: "2026-11-02", Interval: "day"})
	if len(a.Rows) != 1 || a.Rows[0].To.Sub(a.Rows[0].From) != 25*time.Hour || a.Total.Accepted != 7 {
		t.Errorf("%+v", a)
	}
}

func TestRowsAndBounds(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:30Z"))
	d.run()
	rows := func(r Request, interval string, n int, from, to string) {
		t.Helper()
		a := d.must(r)
		if a.Query.Interval != interval || len(a.Rows) != n || !a.Query.From.Equal(at(t, from)) || !a.Query.To.Equal(at(t, to)) {
			t.Errorf("%+v: %d rows by %s, %s to %s; want %d by %s, %s to %s", r, len(a.Rows), a.Query.Interval,
				a.Query.From.Format(time.RFC3339), a.Query.To.Format(time.RFC3339), n, interval, from, to)
		}
	}
	rows(Request{Period: "1h"}, "minute", 60, "2026-11-30T11:01:00Z", "2026-11-30T12:01:00Z")
	rows(Request{Period: "90m"}, "minute", 90, "2026-11-30T10:31:00Z", "2026-11-30T12:01:00Z")
	rows(Request{Period: "24h"}, "hour", 25, "2026-11-29T12:00:00Z", "2026-11-30T13:00:00Z")
	rows(Request{Period: "1500m", Interval: "minute"}, "minute", 1500, "2026-11-29T11:01:00Z", "2026-11-30T12:01:00Z")
	rows(Request{Period: "today"}, "hour", 24, "2026-11-30T00:00:00Z", "2026-12-01T00:00:00Z")
	rows(Request{Period: "7d"}, "day", 7, "2026-11-24T00:00:00Z", "2026-12-01T00:00:00Z")
	rows(Request{From: "2026-11-29"}, "hour", 48, "2026-11-29T00:00:00Z", "2026-12-01T00:00:00Z")
	rows(Request{From: "2026-11-30T08:07:00Z", To: "2026-11-30T08:09:00Z"}, "minute", 2, "2026-11-30T08:07:00Z", "2026-11-30T08:09:00Z")
	rows(Request{From: "2026-11-20T08:00:00Z", To: "2026-11-20T10:00:00Z"}, "hour", 2, "2026-11-20T08:00:00Z", "2026-11-20T10:00:00Z")

	for _, p := range []string{"0h", "1081h", "1501m", "-1h", "+1h", "h", "1", "1s", "1.5h", "tomorrow", "401d", "99999999999999999999h", "é"} {
		d.refused(Request{Period: p}, apperr.Invalid, "bad_period")
	}
	d.refused(Request{}, apperr.Invalid, "bad_range")
	d.refused(Request{To: "2026-11-30"}, apperr.Invalid, "bad_range")
	d.refused(Request{Period: "1h", From: "2026-11-30"}, apperr.Invalid, "bad_range")
	d.refused(Request{From: "x"}, apperr.Invalid, "bad_time")
	d.refused(Request{From: "2026-11-30", To: "2026-11-30"}, apperr.Invalid, "empty_range")
	d.refused(Request{Period: "1h", Interval: "week"}, apperr.Invalid, "bad_interval")
	d.refused(Request{From: "2026-11-30T08:07:30Z", To: "2026-11-30T09:00:00Z", Interval: "minute"}, apperr.Invalid, "not_on_minute")
	d.refused(Request{From: "2026-11-30T08:07:00Z", To: "2026-11-30T09:00:00Z", Interval: "hour"}, apperr.Invalid, "not_on_hour")
	d.refused(Request{From: "2026-11-30T08:00:00Z", To: "2026-11-30T09:01:00Z", Interval: "day"}, apperr.Invalid, "not_on_hour")
	d.refused(Request{From: "2026-11-29T00:00:00Z", To: "2026-11-30T01:01:00Z", Interval: "minute"}, apperr.Invalid, "too_many_buckets")
	d.refused(Request{From: "2026-11-27T12:00:00Z", To: "2026-11-27T13:00:00Z", Interval: "minute"}, apperr.Invalid, "minutes_expired")
	d.refused(Request{From: "2020-01-01", Interval: "hour"}, apperr.Invalid, "too_many_buckets")
	d.refused(Request{From: "1970-01-01", Interval: "day"}, apperr.Invalid, "too_many_buckets")
}

// Numbers that are no longer kept are not zero: they are not known.
func TestExpiredRows(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:30Z"))
	d.send("2026-11-30T12:00:30Z", 7, 2, "too_late")
	d.run()
	a := d.must(Request{From: "2026-10-10", Interval: "day"})
	for _, r := range a.Rows {
		if want := r.To.Before(at(t, "2026-10-16T12:00:30Z")); r.Expired != want {
			t.Errorf("%s: expired %v, want %v", r.Label, r.Expired, want)
		}
	}
	if !a.Total.Expired || a.Total.Received != 8 {
		t.Errorf("total %+v", a.Total)
	}
	var csv strings.Builder
	if err := a.WriteCSV(&csv); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(csv.String()), "\n")
	if lines[0] != "label,from,to,received,accepted,duplicates,bots,rejected,complete,rejected_too_late" ||
		lines[1] != "2026-10-10,2026-10-10T00:00:00Z,2026-10-11T00:00:00Z,,,,,,true," ||
		lines[len(lines)-1] != "2026-11-30,2026-11-30T00:00:00Z,2026-12-01T00:00:00Z,8,5,2,0,1,false,1" {
		t.Errorf("CSV:\n%s\n%s\n%s", lines[0], lines[1], lines[len(lines)-1])
	}
	if a := d.must(Request{Period: "40d"}); a.Total.Expired {
		t.Error("40 days are kept")
	}
}

// A minute is complete only when what was refused in it must have reached the journal, too.
func TestComplete(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:30Z"))
	if a := d.must(Request{Period: "5m"}); a.AsOf != nil || a.Rows[0].Complete || a.Total.Complete {
		t.Errorf("nothing was applied yet: %+v", a)
	}
	f := func(now string, complete int) {
		t.Helper()
		d.clock.Set(at(t, now))
		d.run()
		a := d.must(Request{From: "2026-11-30T11:58:00Z", To: "2026-11-30T12:02:00Z"})
		n := 0
		for _, r := range a.Rows {
			if r.Complete {
				n++
			}
		}
		if n != complete || a.Total.Complete != (n == 4) || !a.AsOf.Equal(d.clock.Now().Add(-settle)) {
			t.Errorf("at %s %d rows are complete, want %d; %+v as of %s", now, n, complete, a.Total, a.AsOf)
		}
	}
	f("2026-11-30T12:00:01Z", 1)
	f("2026-11-30T12:00:02Z", 2)
	f("2026-11-30T12:02:02Z", 4)
}

func TestAnswersShape(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:30Z"))
	d.send("2026-11-30T12:00:30Z", 7, 2, "too_late")
	d.run()
	got, err := json.Marshal(d.must(Request{From: "2026-11-30T11:59:00Z", To: "2026-11-30T12:01:00Z"}))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"query":{"project":"demo","from":"2026-11-30T11:59:00Z","to":"2026-11-30T12:01:00Z","interval":"minute"},"zone":"UTC","as_of":"2026-11-30T12:00:28Z",` +
		`"rows":[{"label":"2026-11-30T11:59+00:00","from":"2026-11-30T11:59:00Z","to":"2026-11-30T12:00:00Z","received":0,"accepted":0,"duplicates":0,"bots":0,"rejected":{},"complete":true},` +
		`{"label":"2026-11-30T12:00+00:00","from":"2026-11-30T12:00:00Z","to":"2026-11-30T12:01:00Z","received":8,"accepted":5,"duplicates":2,"bots":0,"rejected":{"too_late":1},"complete":false}],` +
		`"total":{"received":8,"accepted":5,"duplicates":2,"bots":0,"rejected":{"too_late":1},"complete":false},` +
		`"kept":{"minutes_since":"2026-11-27T12:00:30Z","hours_since":"2026-10-16T12:00:30Z"}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestDamageIsNoZero(t *testing.T) {
	ctx := context.Background()
	d := newDriver(t, at(t, "2026-11-30T12:00:30Z"))
	d.send("2026-11-30T12:00:30Z", 7, 2)
	d.run()
	key := minuteKey(keyBase(shardOf(testShards, "demo"), "demo"), d.clock.Now())
	for _, field := range []string{"no colon", "00:accept", "00:rejected"} {
		if err := d.rdb.HSet(ctx, key, field, 1).Err(); err != nil {
			t.Fatal(err)
		}
		d.refused(Request{Period: "5m"}, apperr.Internal, "damaged_count")
		d.rdb.HDel(ctx, key, field)
	}
	d.want(Request{Period: "5m"}, "2026-11-30T12:00+00:00 7=5+2+0, total 7=5+2+0")
	d.rdb.HSet(ctx, key, "00:accepted", "many")
	d.refused(Request{Period: "5m"}, apperr.Internal, "damaged_count")
	d.rdb.Set(ctx, key, "a string", 0)
	d.refused(Request{Period: "5m"}, apperr.Internal, "damaged_count")
	d.rdb.Del(ctx, key)
	d.rdb.HSet(ctx, projection.MetaKey(shardOf(testShards, "demo"), Name), "asof", "noon")
	d.refused(Request{Period: "5m"}, apperr.Internal, "damaged_count")
}

func TestRedisAway(t *testing.T) {
	server := realtest.Redis(t)
	d := &driver{t: t, rdb: redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1, DialerRetries: 1}), clock: newDriver(t, at(t, "2026-11-30T12:00:30Z")).clock}
	defer d.rdb.Close()
	server.Kill()
	d.refused(Request{Period: "5m"}, apperr.Unavailable, "redis_unavailable")
}

func TestOneRoundTrip(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:30Z"))
	d.run()
	d.must(Request{Period: "1m"})
	counter := &hook{}
	d.rdb.AddHook(counter)
	d.must(Request{Period: "1500m", Interval: "minute"})
	d.must(Request{From: "2023-01-01", Interval: "day"})
	if counter.pipelines != 2 || counter.single != 0 || counter.commands > 1+26+1+47 {
		t.Errorf("%+v, want one pipeline an answer", counter)
	}
}

type hook struct{ pipelines, commands, single int }

func (h *hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.single++
		return next(ctx, cmd)
	}
}

func (h *hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.pipelines++
		h.commands += len(cmds)
		return next(ctx, cmds)
	}
}
