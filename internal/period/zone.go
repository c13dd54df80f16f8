package period

import "time"

// maxOffset is beyond any zone's distance from UTC, in seconds.
const maxOffset = 20 * 3600

// date is a calendar day as the count of days since 1970-01-01 in the proleptic Gregorian calendar.
type date int64

const secondsADay = 24 * 3600

// dateOf is the local date of an instant.
func dateOf(t time.Time) date {
	_, offset := t.Zone()
	return date(floorDiv(t.Unix()+int64(offset), secondsADay))
}

func makeDate(year int, month time.Month, day int) date {
	return date(floorDiv(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix(), secondsADay))
}

// utc is the date's midnight in UTC: for calendar arithmetic and formatting only.
func (d date) utc() time.Time { return time.Unix(int64(d)*secondsADay, 0).UTC() }

// monday is the Monday of the date's ISO week.
func (d date) monday() date { return d - date((d.utc().Weekday()+6)%7) }

// firstOfMonth is the first day of the month that is n months after the date's.
func (d date) firstOfMonth(n int) date {
	t := d.utc()
	return makeDate(t.Year(), t.Month()+time.Month(n), 1)
}

// start is the first instant whose local date is d or later. Where the clock jumps over midnight that is not 00:00, where a date
// was skipped it is the start of the next one, and where the clock went back over midnight it is the first of the two.
func (d date) start(loc *time.Location) time.Time {
	local := int64(d) * secondsADay
	t := time.Unix(local-maxOffset, 0).In(loc)
	for {
		_, offset := t.Zone()
		end := changeAfter(t)
		at := max(local-int64(offset), t.Unix())
		if end.IsZero() || at < end.Unix() {
			return time.Unix(at, 0).UTC()
		}
		t = end
	}
}

// changeAfter is an instant after t up to which the zone's offset does not change; zero if it never does again. It may be sooner than the
// next change. Where a zone follows a rule, ZoneBounds ends each year after 365 days, so on the last day of a leap year its end lies before t
// (Go 1.26, time.tzset).
func changeAfter(t time.Time) time.Time {
	_, end := t.ZoneBounds()
	if end.IsZero() || end.After(t) {
		return end
	}
	return t.Truncate(15 * time.Minute).Add(15 * time.Minute) // zones change on quarters of an hour
}

// hourAround is the local hour around t: the longest stretch of one wall-clock hour without a change of the zone's offset.
func hourAround(t time.Time, loc *time.Location) (from, to time.Time) {
	t = t.In(loc)
	_, offset := t.Zone()
	start := floorDiv(t.Unix()+int64(offset), 3600)*3600 - int64(offset)
	end := start + 3600
	// A zone may change its name and not its offset: that cuts no hour.
	for u := t; ; {
		begins, _ := u.ZoneBounds()
		if begins.IsZero() || begins.Unix() <= start {
			break
		}
		u = begins.Add(-1)
		if _, o := u.Zone(); o != offset {
			start = begins.Unix()
			break
		}
	}
	for u := t; ; {
		ends := changeAfter(u)
		if ends.IsZero() || ends.Unix() >= end {
			break
		}
		u = ends
		if _, o := u.Zone(); o != offset {
			end = ends.Unix()
			break
		}
	}
	return time.Unix(start, 0).UTC(), time.Unix(end, 0).UTC()
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
