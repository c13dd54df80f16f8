package users

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/period"
	"github.com/rollcall/rollcall/internal/projection"
)

// Name is the projection's name in the meta keys.
const Name = "users"

const (
	defaultMirrorBytes = 64 << 20
	maxProjects        = 1024
	maxSegments        = 65_536 // segments of first days that are known to be allocated
	maxCells           = 65_536 // sets that are known
	askAtOnce          = 1000   // reads of one pipeline

	sealAfter = 10 * time.Minute // from the end of a day: what comes then is rare
	sealEvery = time.Minute
	sealMost  = 256 // sets at once
)

// Options of a Projection.
type Options struct {
	// Zone is a project's zone; nil for a project that is not known, whose events then count in UTC.
	Zone func(project string) *time.Location
	// Exact names the events that a project has sets of; counters.Any for one set of all events.
	Exact       func(project string) []string
	MirrorBytes int64         // memory for the sets that are at work; 0 = 64 MiB
	Keep        counters.Keep // zero = defaults
	Clock       clock.Clock   // nil = the machine's
}

// Projection keeps the sets. It needs the ordinals that package ordinal fills in. It implements projection.Projection.
type Projection struct {
	o        Options
	now      int64 // unix milliseconds, at the begin of the batch
	batch    uint32
	projects map[string]*project
	held     int64 // bytes of all mirrors
	cells    int   // sets that are known
	sealed   int64 // when tails of days that are over were last folded, by receive time
	segments map[string]struct{}

	// Of the batch.
	touched []*set
}

var (
	_ projection.Projection = (*Projection)(nil)
	_ projection.Joiner     = (*Projection)(nil)
)

type project struct {
	id      string
	zone    *time.Location
	cutter  *period.Cutter
	any     *metric            // nil if it has no set of all events
	metrics map[string]*metric // by event name; nil for those without sets
	names   []string           // as Options.Exact gave them
	batch   uint32
}

// metric is an event of a project, or any event.
type metric struct {
	name  string // as in keys
	bases []string
	days  map[int64]*day // by begin
	last  *day

	project *project
}

// day is a local day of a metric.
type day struct {
	*period.Slot
	number uint16
	sets   [2][]*set // by kind and shard; nil = not at work
}

// set is a stored set that is at work.
type set struct {
	stored
	key      string
	metric   *metric
	day      *day
	kind     Kind
	shard    int
	batch    uint32
	received int64    // latest of the batch
	pending  []visit  // of the batch
	changes  []uint32 // of the batch: what the tail gets
}

// visit is a user who comes to a set.
type visit struct {
	ordinal    uint32
	first      bool // the user's first event ever, of any name
	historical bool
	received   int64
}

// NewProjection makes the projection; Zone and Exact must be set.
func NewProjection(o Options) *Projection {
	if o.MirrorBytes == 0 {
		o.MirrorBytes = defaultMirrorBytes
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	o.Keep = o.Keep.OrDefault()
	p := &Projection{o: o}
	p.Reset()
	return p
}

// Name implements projection.Projection.
func (p *Projection) Name() string { return Name }

// JoinsLate implements projection.Joiner: sets are there from the first record that the journal still has; see sinceKey.
func (p *Projection) JoinsLate() {}

// Reset forgets everything about Redis's state.
func (p *Projection) Reset() {
	*p = Projection{o: p.o, batch: p.batch, projects: map[string]*project{}, segments: map[string]struct{}{}}
}

// Project folds a batch. After an error the caller must Reset.
func (p *Projection) Project(ctx context.Context, b *projection.Batch, tx *projection.Tx) error {
	p.batch++
	p.now = p.o.Clock.Now().UnixMilli()
	if err := p.collect(ctx, b, tx); err != nil {
		return err
	}
	if err := p.load(ctx, p.touched, tx); err != nil {
		return err
	}
	if err := p.settle(ctx, tx); err != nil {
		return err
	}
	for _, s := range p.touched {
		if err := p.write(s, tx); err != nil {
			return err
		}
	}
	if err := p.seal(b, tx); err != nil {
		return err
	}
	p.forget()
	return nil
}

// seal folds the tails of days that are over: their sets will be read often, and hardly be written again.
func (p *Projection) seal(b *projection.Batch, tx *projection.Tx) error {
	received := int64(0)
	for i := range b.Records {
		received = max(received, b.Records[i].Received)
	}
	if received < p.sealed+sealEvery.Milliseconds() {
		return nil
	}
	p.sealed = received
	var over []*set
	for _, pr := range p.projects {
		pr.each(func(s *set) {
			if s.tail > 0 && s.exists && s.bits != nil && !projection.Expiring(max(s.expiry, s.goes), p.now) && !s.dying &&
				s.day.To+sealAfter.Milliseconds() <= received && len(over) < sealMost {
				over = append(over, s)
			}
		})
	}
	for _, s := range over {
		value, err := encode(s.bits, s.restated)
		if err != nil {
			return fmt.Errorf("encode %s: %w", s.key, err)
		}
		tx.Do(s.shard, "SET", s.key, value, "KEEPTTL")
		s.base, s.tail = len(value)-setHeader, 0
	}
	return nil
}

// collect hands every user to the sets of the event's day.
func (p *Projection) collect(ctx context.Context, b *projection.Batch, tx *projection.Tx) error {
	var pr *project
	for i := range b.Records {
		rec := &b.Records[i]
		for j := range rec.Events {
			e := &rec.Events[j]
			if e.Bot || e.User == "" {
				continue
			}
			if pr == nil || pr.id != e.Project {
				var err error
				if pr, err = p.project(ctx, e.Project, rec, tx); err != nil {
					return err
				}
			}
			slot := pr.cutter.Cut(e.Time).Day
			if pr.any != nil {
				p.add(pr.any, slot, rec, e, tx)
			}
			if len(pr.metrics) > 0 {
				if m := pr.metrics[e.Name]; m != nil {
					p.add(m, slot, rec, e, tx)
				}
			}
		}
	}
	return nil
}

func (p *Projection) add(m *metric, slot *period.Slot, rec *projection.Record, e *event.Event, tx *projection.Tx) {
	if rec.Seq <= tx.Applied(int(e.UserShard)) {
		return
	}
	d := m.last
	if d == nil || d.From != slot.From {
		d = m.day(slot, tx.Shards())
		if d == nil {
			return // beyond what days can be numbered
		}
	}
	s := d.sets[Active][e.UserShard]
	if s == nil || s.batch != p.batch {
		s = p.touch(m, d, Active, int(e.UserShard), tx)
	}
	s.received = max(s.received, rec.Received)
	s.pending = append(s.pending, visit{e.Ordinal, e.First, e.Historical, rec.Received})
}

func (m *metric) day(slot *period.Slot, shards int) *day {
	d := m.days[slot.From]
	if d == nil {
		number, ok := dayNumber(slot.Label)
		if !ok {
			return nil
		}
		d = &day{Slot: slot, number: number, sets: [2][]*set{make([]*set, shards), make([]*set, shards)}}
		m.days[slot.From] = d
	}
	m.last = d
	return d
}

// touch makes a set ready for the batch.
func (p *Projection) touch(m *metric, d *day, kind Kind, shard int, tx *projection.Tx) *set {
	s := d.sets[kind][shard]
	if s == nil {
		s = &set{key: setKey(m.bases[shard], kind, m.name, d.Label), metric: m, day: d, kind: kind, shard: shard}
		d.sets[kind][shard] = s
		p.cells++
	}
	if s.batch != p.batch {
		s.batch, s.received = p.batch, 0
		p.touched = append(p.touched, s)
	}
	return s
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
	exact := p.o.Exact(id)
	if pr == nil || pr.zone != zone || !slices.Equal(pr.names, exact) {
		if pr != nil {
			p.drop(pr, func(*set) bool { return true })
		}
		pr = newProject(string([]byte(id)), zone, exact, tx.Shards())
		p.projects[pr.id] = pr
		if err := p.writeSince(ctx, pr, rec, tx); err != nil {
			return nil, err
		}
	}
	pr.batch = p.batch
	return pr, nil
}

func newProject(id string, zone *time.Location, exact []string, shards int) *project {
	pr := &project{id: id, zone: zone, cutter: period.NewCutter(zone), metrics: map[string]*metric{}, names: slices.Clone(exact)}
	for _, name := range exact {
		m := &metric{name: metricOf(name), bases: make([]string, shards), days: map[int64]*day{}, project: pr}
		for shard := range m.bases {
			m.bases[shard] = keyBase(shard, id)
		}
		if name == counters.Any {
			pr.any = m
		} else {
			pr.metrics[name] = m
		}
	}
	return pr
}

// writeSince notes since when the project and its metrics have sets. A metric that has none any more begins anew if it gets them again.
func (p *Projection) writeSince(ctx context.Context, pr *project, rec *projection.Record, tx *projection.Tx) error {
	home := homeOf(tx.Shards(), pr.id)
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
	for _, name := range pr.names {
		fields = append(fields, metricOf(name))
	}
	for _, field := range stored {
		if !slices.Contains(fields, field) {
			tx.Do(home, "HDEL", key, field)
		}
	}
	for _, field := range fields {
		tx.Do(home, "HSETNX", key, field, at)
	}
	return nil
}

// settle decides who is new to each set, and on which day each user came first.
func (p *Projection) settle(ctx context.Context, tx *projection.Tx) error {
	var came arrivals
	for _, s := range p.touched {
		for _, v := range s.pending {
			if s.bits.CheckedAdd(v.ordinal) {
				s.changes = append(s.changes, v.ordinal)
				s.restate(v)
				came.add(s, v)
			}
		}
		s.pending = emptied(s.pending)
	}
	if err := came.load(ctx, tx); err != nil {
		return err
	}
	type change struct {
		set   *set
		visit visit
		add   bool
	}
	var changes []change
	before := len(p.touched)
	first := func(a *arrival, d *day, add bool) {
		s := p.touch(a.set.metric, d, First, a.set.shard, tx)
		s.received = max(s.received, a.visit.received)
		changes = append(changes, change{s, a.visit, add})
	}
	for i := range came.list {
		a := &came.list[i]
		began := a.user.day
		if began != 0 && began <= a.set.day.number {
			continue
		}
		first(a, a.set.day, true)
		if began != 0 { // a late event: the user came earlier than was known
			d, err := a.set.metric.numbered(began, tx.Shards())
			if err != nil {
				return err
			}
			first(a, d, false)
		}
		a.user.day, a.user.moved = a.set.day.number, true
	}
	if err := p.load(ctx, p.touched[before:], tx); err != nil {
		return err
	}
	for _, c := range changes {
		switch o := c.visit.ordinal; {
		case c.add && c.set.bits.CheckedAdd(o):
			c.set.changes = append(c.set.changes, o)
		case !c.add && c.set.bits.CheckedRemove(o):
			c.set.changes = append(c.set.changes, o|gone)
		default:
			continue
		}
		c.set.restate(c.visit)
	}
	came.write(p, tx)
	return nil
}

// restate notes a change of a day that was over when its event came. What is imported is no news of the day.
func (s *set) restate(v visit) {
	if v.received >= s.day.To && !v.historical {
		s.note(v.received)
		s.renoted = true
	}
}

// numbered is a day of the metric by its number.
func (m *metric) numbered(n uint16, shards int) (*day, error) {
	label, loc := dayLabel(n), m.project.zone
	noon, err := time.ParseInLocation(time.DateOnly+" 15", label+" 12", loc)
	if err != nil {
		return nil, err
	}
	b := period.Of(period.Day, noon, loc)
	if b.Label != label {
		return nil, fmt.Errorf("a user of %s… came first on %s, a day that the zone %s does not have: rebuild the projection %s", m.bases[0], label, loc, Name)
	}
	return m.day(&period.Slot{From: b.From.UnixMilli(), To: b.To.UnixMilli(), Label: b.Label}, shards), nil
}

// stored is what is known of a set in Redis, and a copy of it.
type stored struct {
	decoded // without bits = not loaded
	exists  bool
	renoted bool  // restated is to be written
	dying   bool  // it may be gone before the commit, so all of it is written
	expiry  int64 // set in this epoch, unix milliseconds
	goes    int64 // when it goes, as it was loaded; 0 = it was made in this epoch
	size    int64 // of bits, counted in held
}

// load reads the sets that are not in memory.
func (p *Projection) load(ctx context.Context, sets []*set, tx *projection.Tx) error {
	var wanted []*set
	for _, s := range sets {
		s.dying = s.dying || projection.Expiring(s.expiry, p.now)
		if s.bits == nil {
			wanted = append(wanted, s)
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
		gets, ttls := make([]*redis.StringCmd, len(part)), make([]*redis.DurationCmd, len(part))
		_, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i, s := range part {
				gets[i], ttls[i] = pipe.Get(ctx, s.key), pipe.PTTL(ctx, s.key)
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("load sets of users: %w", err)
		}
		for i, s := range part {
			text, err := gets[i].Result()
			if errors.Is(err, redis.Nil) {
				s.stored = stored{decoded: decoded{bits: roaring.New()}}
				continue
			}
			if err != nil {
				return fmt.Errorf("load %s: %w", s.key, err)
			}
			s.stored = stored{exists: true}
			if s.decoded, err = decode(text); err != nil {
				return fmt.Errorf("load %s: %w; rebuild the projection %s", s.key, err, Name)
			}
			ttl := ttls[i].Val()
			s.dying = ttl >= 0 && ttl < time.Hour
			s.goes = p.now + ttl.Milliseconds()
		}
	}
	return nil
}

// write sends what the batch has changed in a set: the new members as its tail, or all of it.
func (p *Projection) write(s *set, tx *projection.Tx) error {
	until := projection.Expiry(s.day.To, s.received, p.o.Keep.Days, p.now)
	added := word * len(s.changes)
	whole := s.dying || s.tail+added > max(minTail, s.base/4)
	switch {
	case added == 0 && (!s.exists || until <= s.expiry):
		return nil
	case added == 0 && !s.dying:
		tx.Do(s.shard, "EXPIREAT", s.key, until/1000)
		s.expiry = until
		return nil
	case whole || !s.exists:
		var value []byte
		if whole {
			var err error
			if value, err = encode(s.bits, s.restated); err != nil {
				return fmt.Errorf("encode %s: %w", s.key, err)
			}
			s.base, s.tail = len(value)-setHeader, 0
		} else {
			value = encodeTail(appendHeader(nil, 0, s.restated), s.changes)
			s.base, s.tail = 0, added
		}
		until = max(until, s.expiry)
		tx.Do(s.shard, "SET", s.key, value, "EXAT", until/1000)
		s.exists, s.dying, s.expiry = true, false, until
	default:
		tx.Do(s.shard, "APPEND", s.key, encodeTail(nil, s.changes))
		s.tail += added
		if s.renoted {
			tx.Do(s.shard, "SETRANGE", s.key, restatedAt, s.restated.append(nil))
		}
		if until > s.expiry {
			tx.Do(s.shard, "EXPIREAT", s.key, until/1000)
			s.expiry = until
		}
	}
	s.changes, s.renoted = emptied(s.changes), false
	size := int64(s.bits.GetSizeInBytes())
	p.held += size - s.size
	s.size = size
	return nil
}

// forget keeps memory bounded: the sets that were used longest ago go, never one of this batch.
func (p *Projection) forget() {
	p.touched = emptied(p.touched)
	if len(p.segments) > maxSegments {
		clear(p.segments)
	}
	if len(p.projects) > maxProjects {
		for id, pr := range p.projects {
			if pr.batch != p.batch {
				p.drop(pr, func(*set) bool { return true })
				delete(p.projects, id)
			}
		}
	}
	if p.held <= p.o.MirrorBytes && p.cells <= maxCells {
		return
	}
	var batches []uint32 // of all sets
	for _, pr := range p.projects {
		pr.each(func(s *set) { batches = append(batches, s.batch) })
	}
	slices.Sort(batches)
	for _, share := range []int{2, 1} { // the older half; if that is not enough, all
		oldest := batches[(len(batches)-1)/share]
		for _, pr := range p.projects {
			p.drop(pr, func(s *set) bool { return s.batch <= oldest && s.batch != p.batch })
		}
		if p.held <= p.o.MirrorBytes/4*3 && p.cells <= maxCells/4*3 {
			return
		}
	}
}

// each calls fn for every set that is known.
func (pr *project) each(fn func(*set)) {
	visit := func(m *metric) {
		for _, d := range m.days {
			for _, sets := range d.sets {
				for _, s := range sets {
					if s != nil {
						fn(s)
					}
				}
			}
		}
	}
	if pr.any != nil {
		visit(pr.any)
	}
	for _, m := range pr.metrics {
		visit(m)
	}
}

// drop forgets the sets that the predicate names. That is always safe: they are read again.
func (p *Projection) drop(pr *project, which func(*set) bool) {
	left := map[*day]bool{}
	pr.each(func(s *set) {
		if !which(s) {
			left[s.day] = true
			return
		}
		p.held -= s.size
		p.cells--
		s.day.sets[s.kind][s.shard] = nil
	})
	all := []*metric{pr.any}
	for _, m := range pr.metrics {
		all = append(all, m)
	}
	for _, m := range all {
		if m == nil {
			continue
		}
		m.last = nil
		for from, d := range m.days {
			if !left[d] {
				delete(m.days, from)
			}
		}
	}
}

// emptied keeps a small slice for the next batch, and lets what it points to go.
func emptied[T any](s []T) []T {
	if cap(s) > 256 {
		return nil
	}
	clear(s)
	return s[:0]
}
