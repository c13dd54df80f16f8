package drops

import (
	"context"
	"time"

	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/period"
	"github.com/rollcall/rollcall/internal/projection"
)

// Options of a Projection.
type Options struct {
	// Zone is a project's zone, whose hours and days it counts by; nil for a project that is not known: UTC.
	Zone  func(project string) *time.Location
	Clock clock.Clock // nil = the machine's
}

const (
	minuteMs = 60_000
	hourMs   = 60 * minuteMs

	maxExpiries = 8192 // keys whose expiry is remembered
)

// Projection accounts for what requests brought. It works on requests, not on their events. It implements projection.Projection.
type Projection struct {
	o        Options
	expiries map[string]int64 // set in this epoch, by key, unix milliseconds

	// Of the batch.
	now     int64
	minutes cells
	hours   cells
}

var (
	_ projection.Projection = (*Projection)(nil)
	_ projection.Joiner     = (*Projection)(nil)
)

// cells are sums by project and begin of a period, in the order in which they came up.
type cells struct {
	m     map[cellAt]*cell
	order []*cell
	last  *cell
}

type cellAt struct {
	project string
	begin   int64 // unix milliseconds
}

type cell struct {
	cellAt
	shard    int
	applied  uint64 // of the shard
	received int64  // latest record
	sums     Sums
}

// NewProjection makes the projection; Zone must be set.
func NewProjection(o Options) *Projection {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	p := &Projection{o: o}
	p.Reset()
	return p
}

// Name implements projection.Projection.
func (p *Projection) Name() string { return Name }

// JoinsLate implements projection.Joiner: an install that had counts before it had this projection accounts for what its journal still has.
func (p *Projection) JoinsLate() {}

// Reset forgets everything about Redis's state.
func (p *Projection) Reset() {
	p.expiries = map[string]int64{}
	p.forget()
}

// forget lets go of the batch, whose strings the cells hold.
func (p *Projection) forget() {
	p.minutes, p.hours = cells{m: map[cellAt]*cell{}}, cells{m: map[cellAt]*cell{}}
	if len(p.expiries) > maxExpiries {
		clear(p.expiries)
	}
}

// Project folds a batch.
func (p *Projection) Project(_ context.Context, b *projection.Batch, tx *projection.Tx) error {
	p.now = p.o.Clock.Now().UnixMilli()
	for i := range b.Records {
		rec := &b.Records[i]
		for j := range rec.Chunks {
			ch := &rec.Chunks[j]
			c := p.minutes.at(ch.Project, floor(ch.Received, minuteMs), tx)
			if rec.Seq <= c.applied {
				continue
			}
			c.received = max(c.received, rec.Received)
			c.sums.addChunk(ch)
		}
	}
	p.flush(tx)
	p.forget()
	return nil
}

// at finds a cell. Requests that follow each other mostly share one.
func (cs *cells) at(project string, begin int64, tx *projection.Tx) *cell {
	at := cellAt{project, begin}
	if cs.last != nil && cs.last.cellAt == at {
		return cs.last
	}
	c := cs.m[at]
	if c == nil {
		c = &cell{cellAt: at, shard: shardOf(tx.Shards(), project)}
		c.applied = tx.Applied(c.shard)
		cs.m[at] = c
		cs.order = append(cs.order, c)
	}
	cs.last = c
	return c
}

func floor(ms, unit int64) int64 {
	q := ms / unit
	if ms%unit < 0 {
		q--
	}
	return q * unit
}

// flush writes the batch's sums.
func (p *Projection) flush(tx *projection.Tx) {
	for _, c := range p.minutes.order {
		begin := time.UnixMilli(c.begin).UTC()
		key, at := minuteKey(keyBase(c.shard, c.project), begin), begin.Format("04")
		p.write(c, key, at, projection.Expiry(floor(c.begin, hourMs)+hourMs, c.received, KeepMinutes, p.now), tx)

		hour := p.hours.at(c.project, period.Of(period.Hour, begin, p.zone(c.project)).From.UnixMilli(), tx)
		hour.received = max(hour.received, c.received)
		hour.sums.add(&c.sums)
	}
	for _, c := range p.hours.order {
		begin, zone := time.UnixMilli(c.begin), p.zone(c.project)
		day, hour := period.Of(period.Day, begin, zone), period.Of(period.Hour, begin, zone)
		key, at := hourKey(keyBase(c.shard, c.project), day.Label), period.HourField(hour.Label, day.Label)
		p.write(c, key, at, projection.Expiry(day.To.UnixMilli(), c.received, KeepHours, p.now), tx)
	}
}

func (p *Projection) zone(project string) *time.Location {
	if loc := p.o.Zone(project); loc != nil {
		return loc
	}
	return time.UTC
}

// write adds a cell to its hash.
func (p *Projection) write(c *cell, key, at string, until int64, tx *projection.Tx) {
	wrote := false
	c.sums.each(func(kind string, n int64) {
		wrote = true
		tx.Do(c.shard, "HINCRBY", key, fieldOf(at, kind), n)
	})
	if !wrote {
		return
	}
	known := p.expiries[key]
	if projection.Expiring(known, p.now) {
		known = 0
	}
	if until > known {
		tx.Do(c.shard, "EXPIREAT", key, until/1000)
		p.expiries[key] = until
	}
}
