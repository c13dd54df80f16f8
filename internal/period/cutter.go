package period

import "time"

// Slot is a bucket as the projector needs it. Two slots of one kind from one Cutter are the same bucket if and only if their From is the
// same; as long as the Cutter has it in its cache, it is also the same pointer.
type Slot struct {
	From, To int64 // unix milliseconds, [From, To)
	Label    string
	Day      *Slot // of an hour: its day
}

const (
	maxSlots = 4096          // hours kept, nearly half a year; beyond, all are dropped
	quarter  = 900_000       // milliseconds
	bias     = quarter << 32 // makes every time positive, so that division rounds down
	ways     = 256           // quarters of an hour in the fast table
)

// Cutter finds the hour and the day of many instants of one zone. It remembers what it has found, so that the next instant nearby costs a
// few nanoseconds, in whatever order they come; its memory is bounded. Not safe for concurrent use.
type Cutter struct {
	loc      *time.Location
	table    [ways]*Slot     // by quarter of an hour, modulo ways: the hour seen there last
	quarters map[int64]*Slot // by quarter of an hour: the hour seen there last
	hours    map[int64]*Slot // by From
	days     map[int64]*Slot // by From
	day      *Slot           // found last
}

// NewCutter returns a cutter for the zone.
func NewCutter(loc *time.Location) *Cutter {
	return &Cutter{loc: loc, quarters: map[int64]*Slot{}, hours: map[int64]*Slot{}, days: map[int64]*Slot{}}
}

// Cut returns the hour that the instant lies in; its Day is the day. ms is in unix milliseconds, years 1 to 9999.
func (c *Cutter) Cut(ms int64) *Slot {
	q := int64(uint64(ms+bias) / quarter)
	cell := &c.table[q%ways]
	if s := *cell; s != nil && ms >= s.From && ms < s.To {
		return s
	}
	s := c.quarters[q]
	if s == nil || ms < s.From || ms >= s.To { // the second only in zones whose hours begin at odd minutes
		s = c.find(ms)
		c.quarters[q] = s
	}
	*cell = s
	return s
}

func (c *Cutter) find(ms int64) *Slot {
	t := time.UnixMilli(ms)
	from, to := hourAround(t, c.loc)
	if s := c.hours[from.UnixMilli()]; s != nil {
		return s
	}
	if len(c.hours) >= maxSlots {
		*c = *NewCutter(c.loc)
	}
	s := &Slot{From: from.UnixMilli(), To: to.UnixMilli(), Label: hourLabel(from, c.loc), Day: c.dayOf(ms)}
	c.hours[s.From] = s
	return s
}

func (c *Cutter) dayOf(ms int64) *Slot {
	if d := c.day; d != nil && ms >= d.From && ms < d.To {
		return d
	}
	b := Of(Day, time.UnixMilli(ms), c.loc)
	d := c.days[b.From.UnixMilli()]
	if d == nil {
		d = &Slot{From: b.From.UnixMilli(), To: b.To.UnixMilli(), Label: b.Label}
		c.days[d.From] = d
	}
	c.day = d
	return d
}
