package users

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/period"
)

// exact answers as "label n, …; total n".
func (d *driver) exactly(from, to string, interval period.Kind) string {
	d.t.Helper()
	u, err := d.query().Users(context.Background(), Request{About: d.about("demo", from, to), Event: "*", Interval: interval, Method: Exact})
	if err != nil {
		d.t.Fatal(err)
	}
	var s strings.Builder
	for _, r := range u.Rows {
		fmt.Fprintf(&s, "%s %d, ", r.Label, r.Exact.Value)
	}
	fmt.Fprintf(&s, "total %d", u.Total.Exact.Value)
	return s.String()
}

func (d *driver) wantExactly(from, to string, interval period.Kind, want string) {
	d.t.Helper()
	if got := d.exactly(from, to, interval); got != want {
		d.t.Errorf("%s to %s:\n got %s\nwant %s", from, to, got, want)
	}
}

// views writes an event of each user at an instant, in one record.
func (d *driver) views(instant string, users ...string) {
	var events []event.Event
	for _, u := range users {
		events = append(events, view(u, at(d.t, instant)))
	}
	d.write(events...)
}

func TestBM02_NegativeIds(t *testing.T) {
	d := newDriver(t, at(t, "2026-12-03T12:00:00Z"))
	d.views("2026-12-01T10:00:00Z", "-1", "4294967295")
	d.views("2026-12-02T10:00:00Z", "-1", "18446744073709551615")
	d.Run(10)
	d.wantExactly("2026-12-01", "2026-12-03", period.Day, "2026-12-01 2, 2026-12-02 2, total 3")
}

// Writers and readers at once: no answer is above what was written, none goes back, and the last one is right.
func TestBM08_ReadersWhileWriting(t *testing.T) {
	d := newDriver(t, at(t, "2026-12-03T12:00:00Z"))
	records := make(chan []event.Event)
	var writers, reader sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := 0; i < 10_000; i += 500 {
				var events []event.Event
				for k := range 500 {
					events = append(events, view(fmt.Sprintf("%d-%d", w, i+k), at(t, "2026-12-03T10:00:00Z")))
				}
				records <- events
			}
		})
	}
	go func() { writers.Wait(); close(records) }()
	done := make(chan struct{})
	reader.Go(func() {
		q := d.query()
		about := d.about("demo", "2026-12-03", "2026-12-04")
		last := int64(0)
		for {
			u, err := q.Users(context.Background(), Request{About: about, Event: "*", Interval: period.Day, Method: Exact})
			if err != nil {
				t.Error(err)
				return
			}
			if v := u.Total.Exact.Value; v < last || v > 80_000 {
				t.Errorf("%d users after %d", v, last)
			} else {
				last = v
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for events := range records {
		d.write(events...)
		d.Run(1)
	}
	close(done)
	reader.Wait()
	d.wantExactly("2026-12-03", "2026-12-04", period.Day, "2026-12-03 80000, total 80000")
}

func TestHL02_RangesAreUnions(t *testing.T) {
	d := newDriver(t, at(t, "2026-12-03T12:00:00Z"))
	for day, first := range map[string]int{"2026-12-01": 1, "2026-12-02": 5001} {
		var events []event.Event
		for i := range 10_000 {
			events = append(events, view(fmt.Sprint("u", first+i), at(t, day+"T10:00:00Z")))
		}
		d.write(events...)
	}
	d.Run(10)
	d.wantExactly("2026-12-01", "2026-12-03", period.Day, "2026-12-01 10000, 2026-12-02 10000, total 15000")
}

func TestHL03_OrderAndRepetition(t *testing.T) {
	days := map[string][]string{"2026-12-01": {"a", "b"}, "2026-12-02": {"b", "c"}, "2026-12-03": {"c", "d"}}
	for _, order := range [][]string{
		{"2026-12-01", "2026-12-02", "2026-12-03"}, {"2026-12-01", "2026-12-03", "2026-12-02"}, {"2026-12-02", "2026-12-01", "2026-12-03"},
		{"2026-12-02", "2026-12-03", "2026-12-01"}, {"2026-12-03", "2026-12-01", "2026-12-02"}, {"2026-12-03", "2026-12-02", "2026-12-01"},
	} {
		d := newDriver(t, at(t, "2026-12-04T12:00:00Z"))
		for range 2 {
			for _, day := range order {
				d.views(day+"T10:00:00Z", days[day]...)
			}
		}
		d.Run(2)
		d.wantExactly("2026-12-01", "2026-12-04", period.Month, "2026-12 4, total 4")
	}
}

func TestHL06_NamesBuildTheirOwnSets(t *testing.T) {
	d := newDriver(t, at(t, "2026-12-03T12:00:00Z"))
	names := []string{"a}{b", "a:b", "a%3ab", "{}", ":", "on:x", "x:2026-12-03", "阅读", "a b", "/"}
	d.exact["demo"] = names
	var events []event.Event
	for i, name := range names {
		for u := range i + 1 {
			e := view(fmt.Sprint("u", u), at(t, "2026-12-03T10:00:00Z"))
			e.Name = name
			events = append(events, e)
		}
	}
	d.write(events...)
	d.Run(1)
	for i, name := range names {
		u, err := d.query().Users(context.Background(), Request{About: d.about("demo", "2026-12-03", "2026-12-04"), Event: name, Interval: period.Day, Method: Exact})
		if err != nil || u.Total.Exact.Value != int64(i+1) {
			t.Errorf("%q: %+v, %v; want %d", name, u, err, i+1)
		}
	}
}

func TestTZ02_HalfHourZone(t *testing.T) {
	d := newDriver(t, at(t, "2026-12-03T12:00:00Z"))
	d.zones["demo"] = zone(t, "Asia/Kolkata")
	d.views("2026-11-29T18:15:00Z", "u1")
	d.views("2026-11-29T18:45:00Z", "u2")
	d.Run(10)
	d.wantExactly("2026-11-29", "2026-12-01", period.Day, "2026-11-29 1, 2026-11-30 1, total 2")
}

func TestTZ05_DayWithoutMidnight(t *testing.T) {
	d := newDriver(t, at(t, "2026-09-10T12:00:00Z"))
	d.zones["demo"] = zone(t, "America/Santiago")
	d.views("2026-09-06T03:30:00Z", "u1")
	d.views("2026-09-06T04:10:00Z", "u2")
	d.Run(10)
	d.wantExactly("2026-09-05", "2026-09-07", period.Day, "2026-09-05 1, 2026-09-06 1, total 2")
}

// Every cell of retention follows the calendar over the change of the clock: 24, 25 and 24 hours.
func TestTZ07_DaysAcrossAClockChange(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-05T12:00:00Z"))
	ny := zone(t, "America/New_York")
	d.zones["demo"] = ny
	n := 0
	for h := time.Date(2026, 10, 31, 0, 0, 0, 0, ny); h.Before(time.Date(2026, 11, 3, 0, 0, 0, 0, ny)); h = h.Add(time.Hour) {
		d.write(view(fmt.Sprint("u", n), h), view("daily", h))
		n++
	}
	d.clock.Add(time.Hour)
	d.views("2026-11-04T10:00:00Z", "other")
	d.Run(100)
	if n != 73 {
		t.Fatalf("%d hours, want 73", n)
	}
	d.wantExactly("2026-10-31", "2026-11-03", period.Day, "2026-10-31 25, 2026-11-01 26, 2026-11-02 25, total 74")
	m, err := d.query().Retention(context.Background(), RetentionRequest{
		About: d.about("demo", "2026-10-31", "2026-11-02"), Cohort: First, Start: "*", Return: "*", Interval: period.Day, Periods: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Rows) != 2 || m.Rows[0].Size != 25 || m.Rows[0].Cells[1].Users != 1 || m.Rows[0].Cells[2].Users != 1 || m.Rows[1].Size != 25 || m.Rows[1].Cells[1].Users != 0 {
		t.Errorf("%+v", m.Rows)
	}
}

func TestTZ09_ISOWeeks(t *testing.T) {
	d := newDriver(t, at(t, "2027-01-10T12:00:00Z"))
	for i, day := range []string{"2026-12-31", "2027-01-01", "2027-01-03", "2027-01-04", "2025-12-29"} {
		d.views(day+"T10:00:00Z", fmt.Sprint("u", i))
	}
	d.Run(10)
	d.wantExactly("2026-12-28", "2027-01-11", period.Week, "2026-W53 3, 2027-W01 1, total 4")
	d.wantExactly("2025-12-29", "2026-01-05", period.Week, "2026-W01 1, total 1")
}

func TestTZ12_OverMidnight(t *testing.T) {
	d := newDriver(t, at(t, "2026-12-01T12:00:00Z"))
	d.views("2026-11-29T23:55:00Z", "u1")
	d.views("2026-11-30T00:05:00Z", "u1")
	d.Run(10)
	d.wantExactly("2026-11-29", "2026-12-01", period.Day, "2026-11-29 1, 2026-11-30 1, total 1")
}

func TestTZ14_OverTheEndOfAMonth(t *testing.T) {
	d := newDriver(t, at(t, "2026-12-02T12:00:00Z"))
	for _, day := range []string{"2026-11-29", "2026-11-30", "2026-12-01"} {
		d.views(day+"T10:00:00Z", "u1")
	}
	d.Run(10)
	d.wantExactly("2026-11-15", "2026-12-15", period.Month, "2026-11 1, 2026-12 1, total 1")
}
