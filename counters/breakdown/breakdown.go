// Package breakdown counts events by the values of their props: for each event and prop that a project names, PV by value, hour and day, and
// UV by value and day. A day has at most so many values; what comes beyond counts as (other), so that the sum is always the event's PV.
package breakdown

import (
	"slices"
	"time"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/ident"
)

// Spec names an event (counters.Any for all events) and the props that it is broken down by.
type Spec struct {
	Event string
	Props []string
	Top   int // values of a prop on a day; 0 = DefaultTop
}

// The bounds of values on a day.
const (
	DefaultTop = 1000
	MaxTop     = 10_000
)

// How values stand in fields: a client's value has a mark before it, so that none is taken for one of ours.
const (
	other     = "other" // beyond Top
	none      = "none"  // the event had no such prop
	ownValue  = "="
	maxInName = 100 // bytes of a field that stands in a key as it is
)

// fieldOf is a value's field. The kinds of prop are one: the number 1 and the text "1" are the same value.
func fieldOf(p event.Prop, has bool) string {
	switch {
	case !has:
		return none
	case p.Kind == event.True:
		return ownValue + "true"
	case p.Kind == event.False:
		return ownValue + "false"
	}
	return ownValue + p.Value
}

// metricOf is an event as it stands in keys.
func metricOf(name string) string {
	if name == counters.Any {
		return name
	}
	return string(ident.AppendEscaped(nil, name))
}

// shardOf is the shard of everything a metric has; it is that of its counters.
func shardOf(shards int, project, metric string) int { return ident.Shard(shards, project, metric) }

// Keep is how long keys live, after the later of the period's end and the receive time of the event that wrote them.
type Keep struct {
	Hours time.Duration // PV by hour; 0 = 45 days
	Days  time.Duration // PV by day; 0 = 400 days
	Users time.Duration // UV by day; 0 = 100 days: a sketch for each value is what costs
}

func (k Keep) orDefault() Keep {
	const day = 24 * time.Hour
	set := func(d *time.Duration, days time.Duration) {
		if *d == 0 {
			*d = days * day
		}
	}
	set(&k.Hours, 45)
	set(&k.Days, 400)
	set(&k.Users, 100)
	return k
}

func sameSpecs(a, b []Spec) bool {
	return slices.EqualFunc(a, b, func(x, y Spec) bool { return x.Event == y.Event && x.Top == y.Top && slices.Equal(x.Props, y.Props) })
}
