package counters

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/period"
)

func TestTZ02_Kolkata(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	d.zones["demo"] = zone(t, "Asia/Kolkata")
	d.write(view("u1", at(t, "2026-11-29T18:15:00Z")), view("u1", at(t, "2026-11-29T18:45:00Z")))
	d.run()
	d.want(CountsRequest{From: "2026-11-29", To: "2026-12-01"}, "2026-11-29 1/1, 2026-11-30 1/1, total 2/1")
	d.want(CountsRequest{From: "2026-11-29T23:00:00+05:30", To: "2026-11-30T01:00:00+05:30", Interval: period.Hour},
		"2026-11-29T23:00+05:30 1/1, 2026-11-30T00:00+05:30 1/1, total 2/1")
	_, err := d.counts(CountsRequest{From: "2026-11-29T18:00:00Z", To: "2026-11-29T19:00:00Z", Interval: period.Hour})
	if e := apperr.As(err); e.Code != "not_on_hour" || !strings.Contains(e.Detail, "2026-11-29T23:00:00+05:30") {
		t.Errorf("a range on UTC hours: %v, want not_on_hour with a remedy", err)
	}
}

func TestTZ04_NoHourThatNeverWas(t *testing.T) {
	d := newDriver(t, at(t, "2026-03-10T12:00:00Z"))
	d.zones["demo"] = zone(t, "America/New_York")
	for x := at(t, "2026-03-08T05:00:00Z"); x.Before(at(t, "2026-03-09T04:00:00Z")); x = x.Add(30 * time.Minute) {
		d.write(view("u1", x))
	}
	d.run()
	c := d.must(CountsRequest{From: "2026-03-08", To: "2026-03-09", Interval: period.Hour})
	if len(c.Rows) != 23 || c.Total.PV != 46 || c.Total.UV.Value != 1 || strings.Contains(brief(c), "T02:") {
		t.Errorf("%d hours: %s; want 23 without 02:00, PV 46", len(c.Rows), brief(c))
	}
	c = d.must(CountsRequest{From: "2026-03-09", To: "2026-03-10", Interval: period.Hour})
	if len(c.Rows) != 24 || c.Total.PV != 0 || !c.Total.Complete {
		t.Errorf("the next day: %d hours, %+v", len(c.Rows), c.Total)
	}
}

func TestTZ05_DayWithoutMidnight(t *testing.T) {
	d := newDriver(t, at(t, "2026-09-08T12:00:00Z"))
	d.zones["demo"] = zone(t, "America/Santiago")
	d.write(view("u1", at(t, "2026-09-06T03:30:00Z")), view("u2", at(t, "2026-09-06T04:10:00Z")))
	d.run()
	d.want(CountsRequest{From: "2026-09-05", To: "2026-09-07"}, "2026-09-05 1/1, 2026-09-06 1/1, total 2/2")
	c := d.must(CountsRequest{From: "2026-09-06", To: "2026-09-07"})
	if r := c.Rows[0]; !r.From.Equal(at(t, "2026-09-06T04:00:00Z")) || r.To.Sub(r.From) != 23*time.Hour {
		t.Errorf("row %v to %v, want 23 h from 04:00Z", r.From, r.To)
	}
}

func TestTZ07_ThreeRowsAcrossTheClockChange(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-05T12:00:00Z"))
	d.zones["demo"] = zone(t, "America/New_York")
	for x := at(t, "2026-10-31T00:30:00-04:00"); x.Before(at(t, "2026-11-03T00:00:00-05:00")); x = x.Add(time.Hour) {
		d.write(view("u1", x))
	}
	d.run()
	d.want(CountsRequest{From: "2026-10-31", To: "2026-11-03"}, "2026-10-31 24/1, 2026-11-01 25/1, 2026-11-02 24/1, total 73/1")
	d.want(CountsRequest{From: "2026-11-01T01:00:00-04:00", To: "2026-11-01T02:00:00-05:00", Interval: period.Hour},
		"2026-11-01T01:00-04:00 1/1, 2026-11-01T01:00-05:00 1/1, total 2/1")
	d.check()
}

func TestTZ08_LastWeekIsAWholeWeek(t *testing.T) {
	now := at(t, "2026-11-30T08:00:00Z")
	d := newDriver(t, now)
	for day := range 7 {
		for range 10 {
			d.write(view("u1", at(t, fmt.Sprintf("2026-11-%dT12:00:00Z", 23+day))))
		}
	}
	for range 3 {
		d.write(view("u1", at(t, "2026-11-30T07:00:00Z")))
	}
	d.run()
	week := period.Of(period.Week, now, time.UTC).Prev(time.UTC)
	d.want(CountsRequest{From: week.From.Format(time.RFC3339), To: week.To.Format(time.RFC3339), Interval: period.Week}, "2026-W48 70/1, total 70/1")
	d.want(CountsRequest{From: "2026-11-23", To: "2026-12-01", Interval: period.Week}, "2026-W48 70/1, 2026-W49 3/1, total 73/1")
}

func TestTZ09_WeeksOfTheISOYear(t *testing.T) {
	d := newDriver(t, at(t, "2027-01-05T12:00:00Z"))
	for _, day := range []string{"2025-12-29", "2026-12-31", "2027-01-01", "2027-01-03", "2027-01-04"} {
		d.write(view(day, at(t, day+"T10:00:00Z")))
	}
	d.run()
	d.want(CountsRequest{From: "2025-12-29", To: "2026-01-05", Interval: period.Week}, "2026-W01 1/1, total 1/1")
	d.want(CountsRequest{From: "2026-12-28", To: "2027-01-11", Interval: period.Week}, "2026-W53 3/3, 2027-W01 1/1, total 4/4")
	c := d.must(CountsRequest{From: "2025-12-22", To: "2027-01-11", Interval: period.Week})
	if c.Total.PV != 5 || len(c.Rows) != 55 || strings.Contains(brief(c), "2027-W53") || strings.Contains(brief(c), "2025-W01") {
		t.Errorf("%d weeks: %s", len(c.Rows), brief(c))
	}
}

func TestTZ11_TodayIsNotTheLast24Hours(t *testing.T) {
	d := newDriver(t, at(t, "2026-12-01T03:00:00Z"))
	d.zones["demo"] = zone(t, "America/New_York")
	for when, n := range map[string]int{"2026-11-29T23:00:00-05:00": 5, "2026-11-30T09:00:00-05:00": 18, "2026-11-30T20:00:00-05:00": 8} {
		for range n {
			d.write(view("u1", at(t, when)))
		}
	}
	d.run()
	d.want(CountsRequest{Period: "today"}, "2026-11-30 26/1, total 26/1")
	c := d.must(CountsRequest{From: "2026-11-29T22:00:00-05:00", To: "2026-11-30T22:00:00-05:00", Interval: period.Hour})
	if c.Total.PV != 31 || len(c.Rows) != 24 {
		t.Errorf("the last 24 h: PV %d in %d hours, want 31 in 24", c.Total.PV, len(c.Rows))
	}
	c = d.must(CountsRequest{From: "2026-12-01T00:00:00Z", To: "2026-12-01T03:00:00Z", Interval: period.Hour})
	if c.Total.PV != 8 {
		t.Errorf("the UTC day so far: PV %d, want 8", c.Total.PV)
	}
}

func TestTS04_LateEventGrowsItsDay(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-27T12:00:00Z"))
	d.write(view("u0", at(t, "2026-11-27T11:00:00Z")))
	d.run()
	d.clock.Set(at(t, "2026-11-28T12:00:00Z"))
	r := CountsRequest{From: "2026-11-27", To: "2026-12-01"}
	d.want(CountsRequest{From: "2026-11-27", To: "2026-11-28"}, "2026-11-27 1/1, total 1/1")
	d.clock.Set(at(t, "2026-11-30T09:00:00Z"))
	d.write(view("u1", at(t, "2026-11-27T10:00:00Z")))
	d.run()
	d.want(r, "2026-11-27 2/2, 2026-11-28 0/0, 2026-11-29 0/0, 2026-11-30 0/0, total 2/2")
	d.check()
}

func TestTZ12_OverMidnight(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T00:06:00+08:00"))
	d.zones["demo"] = zone(t, "Asia/Shanghai")
	d.write(view("u1", at(t, "2026-11-29T23:55:00+08:00")), view("u1", at(t, "2026-11-30T00:05:00+08:00")))
	d.run()
	d.want(CountsRequest{From: "2026-11-29", To: "2026-12-01"}, "2026-11-29 1/1, 2026-11-30 1/1, total 2/1")
	d.want(CountsRequest{Period: "today"}, "2026-11-30 1/1, total 1/1")
	d.want(CountsRequest{Period: "yesterday"}, "2026-11-29 1/1, total 1/1")
	d.want(CountsRequest{Period: "2d"}, "2026-11-29 1/1, 2026-11-30 1/1, total 2/1")
	d.want(CountsRequest{From: "2026-11-30"}, "2026-11-30 1/1, total 1/1")
}

func TestTZ14_OneUserAcrossMonths(t *testing.T) {
	d := newDriver(t, at(t, "2026-12-20T12:00:00Z"))
	for _, s := range []string{"2026-11-29", "2026-11-30", "2026-12-01"} {
		d.write(view("u1", at(t, s+"T10:00:00Z")))
	}
	d.run()
	d.want(CountsRequest{From: "2026-11-01", To: "2027-01-01", Interval: period.Month}, "2026-11 2/1, 2026-12 1/1, total 3/1")
	d.want(CountsRequest{From: "2026-11-15", To: "2026-12-15", Interval: period.Month}, "2026-11 2/1, 2026-12 1/1, total 3/1")
	c := d.must(CountsRequest{From: "2026-11-15", To: "2026-12-15", Interval: period.Month})
	if r := c.Rows[0]; !r.From.Equal(at(t, "2026-11-15T00:00:00Z")) || !r.To.Equal(at(t, "2026-12-01T00:00:00Z")) {
		t.Errorf("the first row is %v to %v, want it cut by the range", r.From, r.To)
	}
}
