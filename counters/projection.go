package counters

import (
	"context"
	"fmt"
	"time"
	"unsafe"

	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/period"
	"github.com/rollcall/rollcall/internal/projection"
)

// Name is the projection's name in the meta keys.
const Name = "counters"

// Options of a Projection.
type Options struct {
	// Zone is a project's zone; nil for a project that is not known, whose events then count in UTC.
	Zone        func(project string) *time.Location
	Names       int         // event names of a project, beyond which they count as Other; 0 = DefaultNames
	MirrorBytes int64       // memory for mirrors of sketches; 0 = 64 MiB
	Keep        Keep        // zero = defaults
	Clock       clock.Clock // nil = the machine's
}

// maxCells bounds what is remembered from batch to batch: pairs of metric and hour, or metric and day, of some 300 bytes.
const (
	maxCells    = 32_768
	maxProjects = 1024
)

const recentHours = 32 // hours of a metric that are found without a map

// Projection counts PV and UV. It implements projection.Projection.
type Projection struct {
	o        Options
	maxCells int
	batch    uint32 // number of this batch
	now      int64  // unix milliseconds, at its begin
	projects map[string]*project
	cells    int
	mirrors  mirrors
	names    [64]nameSlot
	visits   []visit // to be settled

	// Touched by this batch.
	metrics  []*metric
	hours    []*hourCell
	days     []*dayCell
	sketches []*sketch
}

var _ projection.Projection = (*Projection)(nil)

type project struct {
	id      string
	zone    *time.Location
	cutter  *period.Cutter
	metrics map[string]*metric // by event name
	any     *metric
	other   *metric
	names   map[string]struct{} // that have metrics of their own
	home    int                 // shard of names
	batch   uint32
}

type metric struct {
	name    string // as in keys
	base    string // beginning of its keys
	shard   int
	total   any // key
	hours   map[int64]*hourCell
	days    map[int64]*dayCell
	recent  [recentHours]*hourCell
	batch   uint32
	applied uint64 // of its shard
	pv      int64  // of the batch
}

// visit is a user in an hour of a metric. Visits are settled many at a time: each is a look at a register far away, and the looks of a tight
// loop overlap.
type visit struct {
	hour *hourCell
	user string
	mark mark
}

// hourCell is a metric in a local hour.
type hourCell struct {
	slot     *period.Slot
	field    any // of the PV hash
	day      *dayCell
	metric   *metric
	batch    uint32
	pv       int64 // of the batch
	received int64 // latest of the batch
	uv       sketch
}

// dayCell is a metric on a local day.
type dayCell struct {
	to       int64
	metric   *metric
	batch    uint32
	received int64
	late     int64 // events of the batch that came when the day was over
	lateAt   int64 // when the last of them was received
	pvKey    any
	pvExpiry int64 // set in this epoch
	uv       sketch
}

// nameSlot remembers the metric of a name by the string's address: inside a record equal names are one string.
type nameSlot struct {
	project *project
	name    string
	metric  *metric
}

// NewProjection makes the projection; Zone must be set.
func NewProjection(o Options) *Projection {
	if o.MirrorBytes == 0 {
		o.MirrorBytes = 64 << 20
	}
	if o.Names == 0 {
		o.Names = DefaultNames
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	o.Keep = o.Keep.OrDefault()
	p := &Projection{o: o, maxCells: maxCells}
	p.Reset()
	return p
}

// Name implements projection.Projection.
func (p *Projection) Name() string { return Name }

// Reset forgets everything about Redis's state.
func (p *Projection) Reset() {
	*p = Projection{
		o: p.o, maxCells: p.maxCells, batch: p.batch, projects: map[string]*project{}, mirrors: mirrors{limit: int(p.o.MirrorBytes / hllRegisters)}, visits: make([]visit, 0, 256),
	}
}

// Project folds a batch. After an error the caller must Reset.
func (p *Projection) Project(ctx context.Context, b *projection.Batch, tx *projection.Tx) error {
	p.batch++
	p.now = p.o.Clock.Now().UnixMilli()
	var pr *project
	for i := range b.Records {
		rec := &b.Records[i]
		for j := range rec.Events {
			e := &rec.Events[j]
			if e.Bot {
				continue
			}
			if pr == nil || pr.id != e.Project {
				var err error
				if pr, err = p.project(ctx, e.Project, tx); err != nil {
					return err
				}
			}
			hour := pr.cutter.Cut(e.Time)
			var mk mark
			if e.User != "" {
				mk = markOf(e.User)
			}
			p.count(p.metric(pr, e.Name, tx), rec, hour, e, mk)
			p.count(pr.any, rec, hour, e, mk)
		}
	}
	p.settle()
	if err := p.mirrors.load(ctx, p.sketches, p.batch, tx); err != nil {
		return err
	}
	p.flush(tx)
	p.forget()
	return nil
}

// count adds one event to one metric.
func (p *Projection) count(m *metric, rec *projection.Record, hour *period.Slot, e *event.Event, mk mark) {
	if m.batch != p.batch {
		p.touch(m)
	}
	if rec.Seq <= m.applied {
		return
	}
	c := m.recent[uint64(hour.From)>>22%recentHours]
	if c == nil || c.slot != hour {
		c = p.hourCell(m, hour)
	}
	if c.batch != p.batch {
		p.touchHour(c)
	}
	c.pv++
	c.received = max(c.received, rec.Received)
	if rec.Received >= c.day.to && !e.Historical { // what is imported is no news of the day
		c.day.late++
		c.day.lateAt = max(c.day.lateAt, rec.Received)
	}
	if e.User == "" {
		return
	}
	c.uv.received = max(c.uv.received, rec.Received)
	if len(p.visits) == cap(p.visits) {
		p.settle()
	}
	p.visits = append(p.visits, visit{c, e.User, mk})
}

// settle adds the visits to their sketches.
func (p *Projection) settle() {
	for i := range p.visits {
		v := &p.visits[i]
		h := v.hour
		if !h.uv.add(v.user, v.mark) {
			h.day.uv.batchAdds++ // whom the hour has the day has: they share every commit, and the day lives longer
			continue
		}
		h.day.uv.add(v.user, v.mark)
	}
	p.visits = p.visits[:0]
}

func (p *Projection) project(ctx context.Context, id string, tx *projection.Tx) (*project, error) {
	pr := p.projects[id]
	if pr != nil && pr.batch == p.batch {
		return pr, nil
	}
	zone := p.o.Zone(id)
	if zone == nil {
		zone = time.UTC
	}
	if pr == nil {
		pr = &project{id: string([]byte(id)), zone: zone, cutter: period.NewCutter(zone), metrics: map[string]*metric{}, home: homeOf(tx.Shards(), id)}
		pr.any, pr.other = newMetric(pr.id, Any, tx), newMetric(pr.id, Other, tx)
		if err := pr.loadNames(ctx, tx); err != nil {
			return nil, err
		}
		p.projects[pr.id] = pr
	}
	if pr.zone != zone { // changed meanwhile: other buckets from here on
		pr.zone, pr.cutter = zone, period.NewCutter(zone)
		p.dropCells(pr, func(uint32) bool { return true })
	}
	pr.batch = p.batch
	pr.any.applied, pr.other.applied = tx.Applied(pr.any.shard), tx.Applied(pr.other.shard)
	return pr, nil
}

func (pr *project) loadNames(ctx context.Context, tx *projection.Tx) error {
	rdb, err := tx.Read(ctx)
	if err != nil {
		return err
	}
	key := namesKey(keyBase(pr.home, pr.id))
	names, err := rdb.SMembers(ctx, key).Result()
	if err != nil {
		return fmt.Errorf("load %s: %w", key, err)
	}
	pr.names = make(map[string]struct{}, len(names))
	for _, name := range names {
		pr.names[name] = struct{}{}
	}
	return nil
}

// admits tells whether a name has a metric of its own: those do that came first. Wherever a replay begins it decides the same, since a name that
// is not among the first when it comes never is.
func (p *Projection) admits(pr *project, name string, tx *projection.Tx) bool {
	if _, has := pr.names[name]; has {
		return true
	}
	if len(pr.names) >= p.o.Names {
		return false
	}
	name = string([]byte(name)) // it aliases the record
	pr.names[name] = struct{}{}
	tx.Do(pr.home, "SADD", namesKey(keyBase(pr.home, pr.id)), name)
	return true
}

func newMetric(project, name string, tx *projection.Tx) *metric {
	m := &metric{name: name, shard: shardOf(tx.Shards(), project, name), hours: map[int64]*hourCell{}, days: map[int64]*dayCell{}}
	m.base = keyBase(m.shard, project)
	m.total = totalKey(m.base, name)
	return m
}

func (p *Projection) metric(pr *project, name string, tx *projection.Tx) *metric {
	at := unsafe.StringData(name)
	slot := &p.names[uintptr(unsafe.Pointer(at))>>2%uintptr(len(p.names))]
	if slot.project == pr && unsafe.StringData(slot.name) == at && len(slot.name) == len(name) {
		return slot.metric
	}
	m := pr.metrics[name]
	switch {
	case m != nil:
	case p.admits(pr, name, tx):
		m = newMetric(pr.id, metricOf(name), tx)
		pr.metrics[string([]byte(name))] = m
	default:
		m = pr.other
	}
	m.applied = tx.Applied(m.shard)
	*slot = nameSlot{pr, name, m}
	return m
}

func (p *Projection) touch(m *metric) {
	m.batch = p.batch
	p.metrics = append(p.metrics, m)
}

func (p *Projection) hourCell(m *metric, hour *period.Slot) *hourCell {
	c := m.hours[hour.From]
	if c == nil {
		d := m.days[hour.Day.From]
		if d == nil {
			d = &dayCell{to: hour.Day.To, metric: m, pvKey: pvKey(m.base, m.name, hour.Day.Label)}
			d.uv.key = uvDayKey(m.base, m.name, hour.Day.Label)
			m.days[hour.Day.From] = d
			p.cells++
		}
		c = &hourCell{metric: m, day: d, field: period.HourField(hour.Label, hour.Day.Label)}
		c.uv.key = uvHourKey(m.base, m.name, hour.Label)
		m.hours[hour.From] = c
		p.cells++
	}
	c.slot = hour
	m.recent[uint64(hour.From)>>22%recentHours] = c
	return c
}

// touchHour prepares an hour and its day for their first event of the batch.
func (p *Projection) touchHour(c *hourCell) {
	c.batch, c.received = p.batch, 0
	p.hours = append(p.hours, c)
	p.touchSketch(&c.uv)
	if d := c.day; d.batch != p.batch {
		d.batch, d.received = p.batch, 0
		p.days = append(p.days, d)
		p.touchSketch(&d.uv)
		if projection.Expiring(d.pvExpiry, p.now) {
			d.pvExpiry = 0
		}
	}
}

func (p *Projection) touchSketch(s *sketch) {
	s.seen, s.received = p.batch, 0
	p.sketches = append(p.sketches, s)
	if projection.Expiring(s.expiry, p.now) {
		p.mirrors.drop(s)
		s.expiry = 0
	}
}

// flush writes the batch's changes.
func (p *Projection) flush(tx *projection.Tx) {
	for _, c := range p.hours {
		d := c.day
		d.received = max(d.received, c.received)
		c.metric.pv += c.pv
		tx.Do(c.metric.shard, "HINCRBY", d.pvKey, c.field, c.pv)
		c.pv = 0
		d.uv.received = max(d.uv.received, c.uv.received)
		p.mirrors.flush(&c.uv, c.metric.shard, projection.Expiry(c.slot.To, c.uv.received, p.o.Keep.Hours, p.now), tx)
	}
	for _, d := range p.days {
		if d.late > 0 {
			tx.Do(d.metric.shard, "HINCRBY", d.pvKey, fieldLate, d.late)
			tx.Do(d.metric.shard, "HSET", d.pvKey, fieldLateAt, d.lateAt)
			d.late, d.lateAt = 0, 0
		}
		if until := projection.Expiry(d.to, d.received, p.o.Keep.Days, p.now); until > d.pvExpiry {
			tx.Do(d.metric.shard, "EXPIREAT", d.pvKey, until/1000)
			d.pvExpiry = until
		}
		p.mirrors.flush(&d.uv, d.metric.shard, projection.Expiry(d.to, d.uv.received, p.o.Keep.Days, p.now), tx)
	}
	for _, m := range p.metrics {
		if m.pv != 0 {
			tx.Do(m.shard, "INCRBY", m.total, m.pv)
			m.pv = 0
		}
	}
}

// forget lets the batch's strings go and keeps memory bounded.
func (p *Projection) forget() {
	p.names = [64]nameSlot{}
	clear(p.visits[:cap(p.visits)])
	p.metrics, p.hours, p.days, p.sketches = emptied(p.metrics), emptied(p.hours), emptied(p.days), emptied(p.sketches)
	if p.cells <= p.maxCells && len(p.projects) <= maxProjects {
		return
	}
	for id, pr := range p.projects {
		if pr.batch != p.batch {
			p.dropCells(pr, func(uint32) bool { return true })
			delete(p.projects, id)
			continue
		}
		p.dropCells(pr, func(seen uint32) bool { return seen != p.batch })
	}
	if p.cells > p.maxCells/2 || len(p.projects) > maxProjects/2 {
		p.Reset()
	}
}

// dropCells forgets the cells of a project that the predicate names by the batch that touched them last.
func (p *Projection) dropCells(pr *project, which func(seen uint32) bool) {
	for name, m := range pr.metrics {
		p.dropCellsOf(m, which)
		if len(m.hours) == 0 {
			delete(pr.metrics, name)
		}
	}
	p.dropCellsOf(pr.any, which)
	p.dropCellsOf(pr.other, which)
}

func (p *Projection) dropCellsOf(m *metric, which func(seen uint32) bool) {
	m.recent = [recentHours]*hourCell{}
	for from, c := range m.hours {
		if which(c.batch) {
			p.mirrors.drop(&c.uv)
			delete(m.hours, from)
			p.cells--
		}
	}
	for from, d := range m.days {
		if which(d.batch) {
			p.mirrors.drop(&d.uv)
			delete(m.days, from)
			p.cells--
		}
	}
}
