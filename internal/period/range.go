package period

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall/rollcall/internal/apperr"
)

// Range returns the buckets that overlap [from, to), in order. The first and the last may reach beyond. Errors: apperr Invalid empty_range,
// and too_many_buckets when there are more than limit.
func Range(kind Kind, from, to time.Time, loc *time.Location, limit int) ([]Bucket, error) {
	if !from.Before(to) {
		return nil, emptyRange()
	}
	var buckets []Bucket
	for b := Of(kind, from, loc); b.From.Before(to); b = b.Next(loc) {
		if len(buckets) == limit {
			return nil, apperr.New(apperr.Invalid, "too_many_buckets", "The range has more than %d %ss: ask for a shorter range or a longer interval.",
				limit, kind).On("to").Over(fmt.Sprintf("%d %ss", limit, kind), "")
		}
		buckets = append(buckets, b)
	}
	return buckets, nil
}

// ParseRange reads the two ends of [from, to): dates, which mean the start of the day in the zone, or RFC 3339 instants. Errors: apperr
// Invalid bad_time and empty_range.
func ParseRange(from, to string, loc *time.Location) (time.Time, time.Time, error) {
	f, err := parseTime("from", from, loc)
	if err != nil {
		return time.Time{}, time.Time{}, err
	}
	t, err := parseTime("to", to, loc)
	if err != nil {
		return time.Time{}, time.Time{}, err
	}
	if !f.Before(t) {
		return time.Time{}, time.Time{}, emptyRange()
	}
	return f, t, nil
}

// Named reads a range that is named by its place before now, in whole local days: today, yesterday, or 1d to 400d (that many days, the last
// of them today). Error: apperr Invalid bad_period.
func Named(name string, now time.Time, loc *time.Location) (from, to time.Time, err error) {
	today := Of(Day, now, loc)
	var days int
	switch name {
	case "today":
		days = 1
	case "yesterday":
		return today.Prev(loc).From, today.From, nil
	default:
		digits, ok := strings.CutSuffix(name, "d")
		n, err := strconv.Atoi(digits)
		if !ok || err != nil || n < 1 || n > 400 {
			return from, to, apperr.New(apperr.Invalid, "bad_period", "The period must be today, yesterday or 1d to 400d.").On("period")
		}
		days = n
	}
	first := dateOf(today.From.In(loc)) - date(days-1)
	return first.start(loc), today.To, nil
}

func parseTime(field, s string, loc *time.Location) (time.Time, error) {
	t, err := time.Parse(time.DateOnly, s)
	if err == nil {
		t = makeDate(t.Date()).start(loc)
	} else if t, err = time.Parse(time.RFC3339, s); err != nil {
		return t, apperr.New(apperr.Invalid, "bad_time", "%s must be a date such as 2015-05-17 or an instant such as 2015-05-17T10:00:00Z.", field).On(field)
	}
	if y := t.Year(); y < 1969 || y > 9998 {
		return t, apperr.New(apperr.Invalid, "bad_time", "%s must lie in the years 1970 to 9998.", field).On(field)
	}
	return t.UTC(), nil
}

func emptyRange() error {
	return apperr.New(apperr.Invalid, "empty_range", "The range is empty: from must be before to; to itself is not included.").On("to")
}

// Asked is a range as people ask for it: From and To, or a Name that Named reads.
type Asked struct{ From, To, Name string }

// Bounds reads the range; a To that is empty is the end of today. Errors: apperr Invalid bad_range, bad_period, bad_time, empty_range.
func (a Asked) Bounds(now time.Time, loc *time.Location) (from, to time.Time, err error) {
	switch {
	case a.Name != "" && (a.From != "" || a.To != ""):
		err = apperr.New(apperr.Invalid, "bad_range", "Give either period, or from and to.").On("period")
	case a.Name != "":
		return Named(a.Name, now, loc)
	case a.From == "":
		err = apperr.New(apperr.Invalid, "bad_range", "Give from (and to), or period.").On("from")
	case a.To == "":
		return ParseRange(a.From, Of(Day, now, loc).To.Format(time.RFC3339), loc)
	default:
		return ParseRange(a.From, a.To, loc)
	}
	return from, to, err
}
