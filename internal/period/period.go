// Package period cuts time into buckets: the local hours, days, ISO weeks and months of a zone, as half-open spans of real instants.
// Every room that needs a bucket takes it from here, so that all agree.
//
// Days, weeks and months begin at the first instant whose local date is theirs. Buckets of a kind tile time without gap or overlap, and
// hours nest in days, in zones whose clock jumps at midnight, by half an hour, or over a whole day too.
package period

import (
	"fmt"
	"strings"
	"time"

	"github.com/rollcall/rollcall/internal/apperr"
)

// Kind is a length of bucket.
type Kind uint8

// The kinds.
const (
	Hour Kind = iota + 1
	Day
	Week  // ISO 8601: Monday to Sunday, named by the ISO year
	Month // of the calendar
)

var kindNames = [...]string{Hour: "hour", Day: "day", Week: "week", Month: "month"}

// String returns the name that ParseKind takes.
func (k Kind) String() string {
	if k < Hour || k > Month {
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// MarshalText writes the name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// ParseKind reads hour, day, week or month. Error: apperr Invalid, bad_interval.
func ParseKind(s string) (Kind, error) {
	for k := Hour; k <= Month; k++ {
		if s == kindNames[k] {
			return k, nil
		}
	}
	return 0, apperr.New(apperr.Invalid, "bad_interval", "The interval must be hour, day, week or month.").On("interval")
}

// Bucket is one interval of a zone's calendar: the instants from From up to, not including, To, both in UTC.
type Bucket struct {
	Kind     Kind
	From, To time.Time
	// Label is unique among the zone's buckets of a kind: "2015-05-17T10:00+00:00" (the wall clock at the start, with its offset, so that
	// autumn's two 01:00 differ), "2015-05-17", "2026-W53", "2026-11".
	Label string
}

// Of returns the bucket that t lies in.
func Of(kind Kind, t time.Time, loc *time.Location) Bucket {
	if kind == Hour {
		from, to := hourAround(t, loc)
		return Bucket{Hour, from, to, hourLabel(from, loc)}
	}
	d := dateOf(t.In(loc))
	// Where the clock has gone back over midnight, the later date has begun already. Dates that were skipped have no instants.
	for !(d + 1).start(loc).After(t) {
		d++
	}
	switch kind {
	case Day:
		return Bucket{Day, d.start(loc), (d + 1).start(loc), d.utc().Format(time.DateOnly)}
	case Week:
		monday := d.monday()
		year, week := monday.utc().ISOWeek()
		return Bucket{Week, monday.start(loc), (monday + 7).start(loc), fmt.Sprintf("%04d-W%02d", year, week)}
	case Month:
		first := d.firstOfMonth(0)
		return Bucket{Month, first.start(loc), first.firstOfMonth(1).start(loc), first.utc().Format("2006-01")}
	}
	panic("period: no such kind: " + kind.String())
}

// Next is the bucket that begins where b ends.
func (b Bucket) Next(loc *time.Location) Bucket { return Of(b.Kind, b.To, loc) }

// Prev is the bucket that ends where b begins.
func (b Bucket) Prev(loc *time.Location) Bucket { return Of(b.Kind, b.From.Add(-1), loc) }

// Contains tells whether from <= t < to.
func (b Bucket) Contains(t time.Time) bool { return !t.Before(b.From) && t.Before(b.To) }

func hourLabel(from time.Time, loc *time.Location) string {
	t := from.In(loc)
	if _, offset := t.Zone(); offset%60 != 0 { // zones before they had whole minutes, the last until 1972
		return t.Format("2006-01-02T15:04:05-07:00:00")
	}
	return t.Format("2006-01-02T15:04-07:00")
}

// HourField is an hour's label inside its day: "10:00+00:00". It is unique within the day. The rare hour whose wall clock shows another
// date (the clock went back over midnight) keeps its whole label.
func HourField(hour, day string) string {
	if field, ok := strings.CutPrefix(hour, day+"T"); ok {
		return field
	}
	return hour
}

// AddMonths moves a date by n months and clamps the day to the length of the month: 31 January + 1 is 28 or 29 February.
func AddMonths(year int, month time.Month, day, n int) (int, time.Month, int) {
	first := makeDate(year, month, 1).firstOfMonth(n)
	last := first.firstOfMonth(1) - 1
	t := min(first+date(day-1), last).utc()
	return t.Year(), t.Month(), t.Day()
}
