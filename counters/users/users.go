// Package users counts users exactly: for each metric and local day the set of the ordinals of those who had it, and of those who had it
// for the first time, as roaring bitmaps in the users' own shards. Users of different shards are different, so counts add up over shards.
package users

import (
	"time"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/internal/ident"
)

// Kind says what a set holds.
type Kind uint8

// The kinds of set.
const (
	Active Kind = iota // who had an event of the metric on the day
	First              // of those: who never had one on an earlier day
)

// metricOf is a metric as it stands in keys: an event's name, or counters.Any.
func metricOf(event string) string {
	if event == counters.Any {
		return event
	}
	return string(ident.AppendEscaped(nil, event))
}

// Days are numbered from 1971-01-01, the earliest that an event can have, so that one fits two bytes until 2150; 0 is no day.
var firstDay = time.Date(1970, 12, 31, 0, 0, 0, 0, time.UTC)

const maxDay = 1<<16 - 1

// dayNumber numbers the day of a label, such as 2015-05-17; ok is false for a label that is none, or out of range.
func dayNumber(label string) (n uint16, ok bool) {
	t, err := time.Parse(time.DateOnly, label)
	if err != nil {
		return 0, false
	}
	d := int64(t.Sub(firstDay) / (24 * time.Hour)) // UTC: every day has 24 hours
	return uint16(d), d >= 1 && d <= maxDay
}

// dayLabel undoes dayNumber.
func dayLabel(n uint16) string { return firstDay.AddDate(0, 0, int(n)).Format(time.DateOnly) }
