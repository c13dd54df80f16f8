package breakdown

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/ident"
	"github.com/rollcall/rollcall/internal/period"
	"github.com/rollcall/rollcall/internal/projection"
)

// Name is the projection's name in the meta keys.
const Name = "breakdowns"

const (
	maxProjects = 1024
	maxValues   = 1_000_000 // values of all days that are known, of some 150 bytes
	maxCells    = 65_536    // days that are known
	maxPending  = 65_536    // visits before they are counted
	maxWords    = 900       // users of one PFADD
	askAtOnce   = 200       // days of one pipeline
)

// Options of a Projection.
type Options struct {
	// Zone is a project's zone; nil for a project that is not known, whose events then count in UTC.
	Zone func(project string) *time.Location
	// Specs are what a project is broken down by.
	Specs func(project string) []Spec
	Keep  Keep        // zero = defaults
	Clock clock.Clock // nil = the machine's
}

// Projection counts by value. It implements projection.Projection.
type Projection struct {
	o        Options
	values   int // known, of all cells
	cells    int
	now      int64 // unix milliseconds, at the begin of the batch
	batch    uint32
	projects map[string]*project

	// Of the batch.
	pending []visit
	touched []*cell
}

var (
	_ projection.Projection = (*Projection)(nil)
	_ projection.Joiner     = (*Projection)(nil)
)

type project struct {
	id      string
	zone    *time.Location
	cutter  *period.Cutter
	specs   []Spec
	any     []*dimension
	byEvent map[string][]*dimension
	batch   uint32
}

// dimension is an event by a prop.
type dimension struct {
	metric, prop string // as in keys
	key          string // of the prop
	base         string
	shard, top   int
	cells        map[int64]*cell // by the day's begin
}

// cell is a dimension on a local day.
type cell struct {
	*dimension
	day     *period.Slot
	loaded  bool
	values  map[string]*value // by field
	expires expiries
	batch   uint32

	// Of the batch.
	received int64
	pv       map[*value]int64
	hours    map[*period.Slot]*hour
}

type expiries struct {
	day   int64
	hours map[int64]int64 // by begin
}

// hour is the part of a cell that one hour of the batch has.
type hour struct {
	received int64
	pv       map[*value]int64
}

// value is one value of a day.
type value struct {
	field  string
	uv     string // key
	expiry int64

	// Of the batch.
	users    map[string]struct{}
	received int64
}

// visit is an event that one cell is to count.
type visit struct {
	cell     *cell
	hour     *period.Slot
	field    string
	user     string
	received int64
}

// NewProjection makes the projection; Zone and Specs must be set.
func NewProjection(o Options) *Projection {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	o.Keep = o.Keep.orDefault()
	p := &Projection{o: o}
	p.Reset()
	return p
}

// Name implements projection.Projection.
func (p *Projection) Name() string { return Name }

// JoinsLate implements projection.Joiner; see sinceKey.
func (p *Projection) JoinsLate() {}

// Reset forgets everything about Redis's state.
func (p *Projection) Reset() {
	*p = Projection{o: p.o, batch: p.batch, projects: map[string]*project{}}
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
				if pr, err = p.project(ctx, e.Project, rec, tx); err != nil {
					return err
				}
			}
			if len(pr.specs) == 0 {
				continue
			}
			slot := pr.cutter.Cut(e.Time)
			p.visit(pr.any, slot, rec, e, tx)
			p.visit(pr.byEvent[e.Name], slot, rec, e, tx)
		}
		if len(p.pending) >= maxPending {
			if err := p.settle(ctx, tx); err != nil {
				return err
			}
		}
	}
	if err := p.settle(ctx, tx); err != nil {
		return err
	}
	for _, c := range p.touched {
		p.write(c, tx)
	}
	p.forget()
	return nil
}

func (p *Projection) project(ctx context.Context, id string, rec *projection.Record, tx *projection.Tx) (*project, error) {
	pr := p.projects[id]
	if pr != nil && pr.batch == p.batch {
		return pr, nil
	}
	zone := p.o.Zone(id)
	if zone == nil {
		zone = time.UTC
	}
	specs := p.o.Specs(id)
	if pr == nil || pr.zone != zone || !sameSpecs(pr.specs, specs) {
		if pr != nil {
			p.drop(pr, func(*cell) bool { return true })
		}
		pr = newProject(string([]byte(id)), zone, specs, tx.Shards())
		p.projects[pr.id] = pr
		if err := p.writeSince(ctx, pr, rec, tx); err != nil {
			return nil, err
		}
	}
	pr.batch = p.batch
	return pr, nil
}

func newProject(id string, zone *time.Location, specs []Spec, shards int) *project {
	pr := &project{id: id, zone: zone, cutter: period.NewCutter(zone), specs: slices.Clone(specs), byEvent: map[string][]*dimension{}}
	for _, s := range specs {
		metric := metricOf(s.Event)
		shard := shardOf(shards, id, metric)
		top := s.Top
		if top == 0 {
			top = DefaultTop
		}
		for _, key := range s.Props {
			d := &dimension{
				metric: metric, prop: string(ident.AppendEscaped(nil, key)), key: key, base: keyBase(shard, id), shard: shard, top: top, cells: map[int64]*cell{},
			}
			if s.Event == counters.Any {
				pr.any = append(pr.any, d)
			} else {
				pr.byEvent[s.Event] = append(pr.byEvent[s.Event], d)
			}
		}
	}
	return pr
}

// all are the dimensions of a project.
func (pr *project) all() []*dimension {
	all := slices.Clone(pr.any)
	for _, s := range pr.specs { // in this order, always
		if s.Event != counters.Any {
			all = append(all, pr.byEvent[s.Event]...)
		}
	}
	return all
}

// writeSince notes since when the project and its dimensions are counted. One that is not any more begins anew if it is again.
func (p *Projection) writeSince(ctx context.Context, pr *project, rec *projection.Record, tx *projection.Tx) error {
	home := ident.Shard(tx.Shards(), pr.id)
	key, at := sinceKey(keyBase(home, pr.id)), strconv.FormatInt(rec.Received, 10)
	rdb, err := tx.Read(ctx)
	if err != nil {
		return err
	}
	stored, err := rdb.HKeys(ctx, key).Result()
	if err != nil {
		return fmt.Errorf("load %s: %w", key, err)
	}
	fields := []string{""}
	for _, d := range pr.all() {
		fields = append(fields, sinceField(d.metric, d.prop))
	}
	for _, field := range stored {
		if !slices.Contains(fields, field) {
			tx.Do(home, "HDEL", key, field)
		}
	}
	for _, field := range fields {
		if !slices.Contains(stored, field) {
			tx.Do(home, "HSETNX", key, field, at)
		}
	}
	return nil
}

// visit notes an event for each of the dimensions.
func (p *Projection) visit(dims []*dimension, slot *period.Slot, rec *projection.Record, e *event.Event, tx *projection.Tx) {
	for _, d := range dims {
		if rec.Seq <= tx.Applied(d.shard) {
			continue
		}
		c := d.cells[slot.Day.From]
		if c == nil {
			c = &cell{dimension: d, day: slot.Day, values: map[string]*value{}, expires: expiries{hours: map[int64]int64{}}}
			d.cells[slot.Day.From] = c
			p.cells++
		}
		if c.batch != p.batch {
			c.batch, c.received = p.batch, 0
			c.pv, c.hours = map[*value]int64{}, map[*period.Slot]*hour{}
			p.touched = append(p.touched, c)
			if projection.Expiring(c.expires.day, p.now) { // it may be gone by the commit: nothing is known
				p.unload(c)
			}
		}
		prop, has := e.Props.Get(d.key)
		p.pending = append(p.pending, visit{c, slot, fieldOf(prop, has), e.User, rec.Received})
	}
}

func (p *Projection) unload(c *cell) {
	p.values -= len(c.values)
	c.values, c.loaded, c.expires = map[string]*value{}, false, expiries{hours: map[int64]int64{}}
}

// settle counts the visits, in the order in which they came: who is first gets a value of its own.
func (p *Projection) settle(ctx context.Context, tx *projection.Tx) error {
	if err := p.load(ctx, tx); err != nil {
		return err
	}
	for i := range p.pending {
		v := &p.pending[i]
		c := v.cell
		val := p.value(c, v.field)
		c.received = max(c.received, v.received)
		c.pv[val]++
		h := c.hours[v.hour]
		if h == nil {
			h = &hour{pv: map[*value]int64{}}
			c.hours[v.hour] = h
		}
		h.pv[val]++
		h.received = max(h.received, v.received)
		if v.user == "" {
			continue
		}
		if val.users == nil {
			val.users = map[string]struct{}{}
		}
		val.users[v.user] = struct{}{}
		val.received = max(val.received, v.received)
	}
	p.pending = emptied(p.pending)
	return nil
}

// value finds or admits a value, or is the cell's (other).
func (p *Projection) value(c *cell, field string) *value {
	if v := c.values[field]; v != nil {
		return v
	}
	if field != none && field != other && c.own() >= c.top {
		return p.value(c, other)
	}
	field = string([]byte(field)) // it aliases the record
	v := &value{field: field, uv: uvKey(c.base, c.metric, c.prop, c.day.Label, field)}
	c.values[field] = v
	p.values++
	return v
}

// own is how many values of clients the day has.
func (c *cell) own() int {
	n := len(c.values)
	for _, ours := range []string{other, none} {
		if c.values[ours] != nil {
			n--
		}
	}
	return n
}

// load reads which values the days have that are not known yet.
func (p *Projection) load(ctx context.Context, tx *projection.Tx) error {
	var wanted []*cell
	for _, c := range p.touched {
		if !c.loaded {
			wanted = append(wanted, c)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	rdb, err := tx.Read(ctx)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(wanted, askAtOnce) {
		fields := make([]*redis.StringSliceCmd, len(part))
		_, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i, c := range part {
				fields[i] = pipe.HKeys(ctx, dayKey(c.base, c.metric, c.prop, c.day.Label))
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("load values: %w", err)
		}
		for i, c := range part {
			c.loaded = true
			for _, field := range fields[i].Val() {
				if c.values[field] == nil {
					c.values[field] = &value{field: field, uv: uvKey(c.base, c.metric, c.prop, c.day.Label, field)}
					p.values++
				}
			}
		}
	}
	return nil
}

// write sends what the batch has counted in a cell.
func (p *Projection) write(c *cell, tx *projection.Tx) {
	if c.received == 0 {
		return
	}
	shard, key := c.shard, dayKey(c.base, c.metric, c.prop, c.day.Label)
	order := make([]*value, 0, len(c.pv))
	for v := range c.pv {
		order = append(order, v)
	}
	slices.SortFunc(order, func(a, b *value) int { // the same batch makes the same commands
		if a.field < b.field {
			return -1
		}
		return 1
	})
	increment := func(key string, pv map[*value]int64) {
		for _, v := range order {
			if n := pv[v]; n > 0 {
				tx.Do(shard, "HINCRBY", key, v.field, n)
			}
		}
	}
	expire := func(key string, known *int64, to, received int64, keep time.Duration) {
		if until := projection.Expiry(to, received, keep, p.now); until > *known {
			tx.Do(shard, "EXPIREAT", key, until/1000)
			*known = until
		}
	}
	increment(key, c.pv)
	expire(key, &c.expires.day, c.day.To, c.received, p.o.Keep.Days)
	slots := make([]*period.Slot, 0, len(c.hours))
	for s := range c.hours {
		slots = append(slots, s)
	}
	slices.SortFunc(slots, func(a, b *period.Slot) int { return int(a.From - b.From) })
	for _, s := range slots {
		h, key := c.hours[s], hourKey(c.base, c.metric, c.prop, s.Label)
		increment(key, h.pv)
		known := c.expires.hours[s.From]
		if projection.Expiring(known, p.now) {
			known = 0
		}
		expire(key, &known, s.To, h.received, p.o.Keep.Hours)
		c.expires.hours[s.From] = known
	}
	for _, v := range order {
		if len(v.users) == 0 {
			continue
		}
		users := make([]any, 0, len(v.users))
		for u := range v.users {
			users = append(users, u)
		}
		for part := range slices.Chunk(users, maxWords) {
			tx.Do(shard, append([]any{"PFADD", v.uv}, part...)...)
		}
		if projection.Expiring(v.expiry, p.now) {
			v.expiry = 0
		}
		expire(v.uv, &v.expiry, c.day.To, v.received, p.o.Keep.Users)
		v.users, v.received = nil, 0
	}
	c.pv, c.hours = nil, nil
}

// forget keeps memory bounded: the days that were touched longest ago go, never one of this batch. They are read again.
func (p *Projection) forget() {
	p.touched = emptied(p.touched)
	if len(p.projects) > maxProjects {
		for id, pr := range p.projects {
			if pr.batch != p.batch {
				p.drop(pr, func(*cell) bool { return true })
				delete(p.projects, id)
			}
		}
	}
	if p.values <= maxValues && p.cells <= maxCells {
		return
	}
	var batches []uint32
	for _, pr := range p.projects {
		for _, d := range pr.all() {
			for _, c := range d.cells {
				batches = append(batches, c.batch)
			}
		}
	}
	slices.Sort(batches)
	for _, share := range []int{2, 1} { // the older half; if that is not enough, all
		oldest := batches[(len(batches)-1)/share]
		for _, pr := range p.projects {
			p.drop(pr, func(c *cell) bool { return c.batch <= oldest && c.batch != p.batch })
		}
		if p.values <= maxValues/4*3 && p.cells <= maxCells/4*3 {
			return
		}
	}
	if p.values > maxValues || p.cells > maxCells {
		p.Reset()
	}
}

func (p *Projection) drop(pr *project, which func(*cell) bool) {
	for _, d := range pr.all() {
		for from, c := range d.cells {
			if which(c) {
				p.values -= len(c.values)
				p.cells--
				delete(d.cells, from)
			}
		}
	}
}

// emptied keeps a small slice for the next batch, and lets what it points to go.
func emptied[T any](s []T) []T {
	if cap(s) > 1024 {
		return nil
	}
	clear(s)
	return s[:0]
}
