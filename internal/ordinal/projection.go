package ordinal

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/projection"
)

// Name is the projection's name in the meta keys.
const Name = "ordinal"

// DefaultCacheUsers is how many users are remembered, in some 64 MiB.
const DefaultCacheUsers = 1_600_000

const (
	maxProjects = 1024
	maxPairs    = 400  // of one HSET: a script unpacks the words of a command
	askAtOnce   = 2000 // reads of one pipeline
)

// Options of a Projection.
type Options struct {
	CacheUsers int // users remembered over all projects; 0 = DefaultCacheUsers
}

// Projection fills UserShard, Ordinal and First of every event that has a user and is no bot's, for the projections behind it in the list, and
// keeps the dictionary in Redis. The same journal gives the same ordinals, wherever it is cut into batches. It implements
// projection.Projection.
type Projection struct {
	o        Options
	cache    *cache
	projects map[string]*project

	// Of the batch.
	missing map[cacheKey]*missing
	order   []*missing // in journal order
}

var (
	_ projection.Projection = (*Projection)(nil)
	_ projection.Joiner     = (*Projection)(nil)
)

type project struct {
	id     string
	mix    cacheKey
	spaces []space // by shard
}

// space is the users of a project in one shard.
type space struct {
	base   string
	loaded bool
	n      uint32 // of them
	whole  int    // losses of the cache up to which it has everybody of this space; -1 = never
	added  []*missing
}

// missing is a user of the batch who is not in the cache.
type missing struct {
	place
	key     cacheKey
	user    string
	project *project
	seq     uint64 // of the first record
	events  []*event.Event
	ordinal uint32
	found   bool
}

// NewProjection makes the projection.
func NewProjection(o Options) *Projection {
	if o.CacheUsers == 0 {
		o.CacheUsers = DefaultCacheUsers
	}
	p := &Projection{o: o}
	p.Reset()
	return p
}

// Name implements projection.Projection.
func (p *Projection) Name() string { return Name }

// JoinsLate implements projection.Joiner: users are numbered from the first record that the journal still has.
func (p *Projection) JoinsLate() {}

// Reset forgets everything about Redis's state.
func (p *Projection) Reset() {
	p.cache, p.projects = newCache(p.o.CacheUsers), map[string]*project{}
	p.missing, p.order = map[cacheKey]*missing{}, nil
}

// Project gives the batch's events their ordinals. After an error the caller must Reset.
func (p *Projection) Project(ctx context.Context, b *projection.Batch, tx *projection.Tx) error {
	p.collect(b, tx.Shards())
	if len(p.order) > 0 {
		if err := p.resolve(ctx, tx); err != nil {
			return err
		}
		p.write(tx)
	}
	p.forget()
	return nil
}

// collect answers from the cache and notes who is not there.
func (p *Projection) collect(b *projection.Batch, shards int) {
	var pr *project
	for i := range b.Records {
		rec := &b.Records[i]
		for j := range rec.Events {
			e := &rec.Events[j]
			if e.Bot || e.User == "" {
				continue
			}
			if pr == nil || pr.id != e.Project {
				pr = p.project(e.Project, shards)
			}
			key := p.cache.key(pr.mix, e.User)
			if f, ok := p.cache.get(key); ok {
				e.UserShard, e.Ordinal = f.shard, f.ordinal
				continue
			}
			m := p.missing[key]
			if m == nil {
				m = &missing{place: placeOf(shards, e.Project, e.User), key: key, user: e.User, project: pr, seq: rec.Seq}
				p.missing[key] = m
				p.order = append(p.order, m)
			}
			m.events = append(m.events, e)
		}
	}
}

func (p *Projection) project(id string, shards int) *project {
	pr := p.projects[id]
	if pr == nil {
		id = string([]byte(id))
		pr = &project{id: id, spaces: make([]space, shards)}
		for i, seed := range p.cache.seeds {
			pr.mix[i] = maphash.String(seed, "project "+id)
		}
		for shard := range pr.spaces {
			pr.spaces[shard].base = keyBase(shard, id)
		}
		p.projects[id] = pr
	}
	return pr
}

// resolve finds those whom the dictionary has, and numbers the others in journal order.
func (p *Projection) resolve(ctx context.Context, tx *projection.Tx) error {
	if err := p.load(ctx, tx); err != nil {
		return err
	}
	if err := p.lookUp(ctx, tx); err != nil {
		return err
	}
	for _, m := range p.order {
		s := &m.project.spaces[m.shard]
		if !m.found {
			switch {
			case m.seq <= tx.Applied(m.shard):
				return fmt.Errorf("a user of record %d is not in the dictionary (%s…), though the shard has the record: rebuild the projection %s",
					m.seq, s.base, Name)
			case s.n >= MaxUsers:
				return fmt.Errorf("%s… has %d users, the most that a shard can number", s.base, s.n)
			}
			m.ordinal = s.n
			s.n++
			s.added = append(s.added, m)
			m.events[0].First = true
		}
		for _, e := range m.events {
			e.UserShard, e.Ordinal = int32(m.shard), m.ordinal
		}
		p.cache.put(m.key, found{m.ordinal, int32(m.shard)})
	}
	return nil
}

// load reads the counts of the spaces that are seen for the first time.
func (p *Projection) load(ctx context.Context, tx *projection.Tx) error {
	var fresh []*space
	for _, m := range p.order {
		if s := &m.project.spaces[m.shard]; !s.loaded {
			s.loaded = true
			fresh = append(fresh, s)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	rdb, err := tx.Read(ctx)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(fresh, askAtOnce) {
		counts := make([]*redis.StringCmd, len(part))
		_, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i, s := range part {
				counts[i] = pipe.Get(ctx, countKey(s.base))
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("read the dictionary's counts: %w", err)
		}
		for i, s := range part {
			if s.n, err = readCount(counts[i]); err != nil {
				return err
			}
			s.whole = -1
			if s.n == 0 {
				s.whole = p.cache.losses
			}
		}
	}
	return nil
}

// lookUp asks the dictionary for everybody who may be there.
func (p *Projection) lookUp(ctx context.Context, tx *projection.Tx) error {
	asks := map[string][]*missing{}
	var keys []string
	for _, m := range p.order {
		s := &m.project.spaces[m.shard]
		if s.whole == p.cache.losses {
			continue
		}
		for level := range levels(s.n) {
			key := keyOf(s.base, level, m.tag, m.user)
			if asks[key] == nil {
				keys = append(keys, key)
			}
			asks[key] = append(asks[key], m)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	rdb, err := tx.Read(ctx)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(keys, askAtOnce) {
		replies := make([]*redis.SliceCmd, len(part))
		_, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i, key := range part {
				fields := make([]string, len(asks[key]))
				for j, m := range asks[key] {
					fields[j] = fieldOf(m.user)
				}
				replies[i] = pipe.HMGet(ctx, key, fields...)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("look users up: %w", err)
		}
		for i, key := range part {
			for j, reply := range replies[i].Val() {
				m := asks[key][j]
				s := &m.project.spaces[m.shard]
				if m.ordinal, m.found, err = readOrdinal(reply, key, s.n, m.ordinal, m.found); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// readOrdinal reads the reply of one level; have and found are what the levels below said.
func readOrdinal(reply any, key string, n, have uint32, found bool) (uint32, bool, error) {
	text, ok := reply.(string)
	if !ok {
		return have, found, nil
	}
	o, err := strconv.ParseUint(text, 10, 32)
	if err != nil || uint32(o) >= n || found {
		return 0, false, fmt.Errorf("%s gives a user the ordinal %q of %d: %w; rebuild the projection %s", key, text, n, projection.ErrDamaged, Name)
	}
	return uint32(o), true, nil
}

// readCount reads how many users a space has.
func readCount(cmd *redis.StringCmd) (uint32, error) {
	text, err := cmd.Result()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the dictionary's counts: %w", err)
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n > MaxUsers || n == 0 {
		return 0, fmt.Errorf("%v holds %q users: %w; rebuild the projection %s", cmd.Args()[1], text, projection.ErrDamaged, Name)
	}
	return uint32(n), nil
}

// write stores the batch's new users.
func (p *Projection) write(tx *projection.Tx) {
	for _, m := range p.order {
		s := &m.project.spaces[m.shard]
		if len(s.added) == 0 {
			continue
		}
		writeUsers(tx, m.shard, s)
		writeTags(tx, m.shard, s)
		tx.Do(m.shard, "SET", countKey(s.base), strconv.FormatUint(uint64(s.n), 10))
		s.added = nil
	}
}

func writeUsers(tx *projection.Tx, shard int, s *space) {
	commands := map[string][]any{}
	var keys []string
	for _, m := range s.added {
		key := keyOf(s.base, levelOf(m.ordinal), m.tag, m.user)
		cmd := commands[key]
		if cmd == nil {
			keys = append(keys, key)
			cmd = []any{"HSET", key}
		}
		cmd = append(cmd, fieldOf(m.user), strconv.FormatUint(uint64(m.ordinal), 10))
		if len(cmd) >= 2*maxPairs {
			tx.Do(shard, cmd...)
			cmd = cmd[:2:2]
		}
		commands[key] = cmd
	}
	for _, key := range keys {
		if cmd := commands[key]; len(cmd) > 2 {
			tx.Do(shard, cmd...)
		}
	}
}

// writeTags stores the new users' tags, which follow each other.
func writeTags(tx *projection.Tx, shard int, s *space) {
	for added := s.added; len(added) > 0; {
		seg, at := SegmentOf(added[0].ordinal)
		n := min(len(added), int(seg.Size-at))
		size := n
		if at == 0 {
			size = int(seg.Size) // allocated once, whole
		}
		tags := make([]byte, 4*size)
		for i, m := range added[:n] {
			putTag(tags[4*i:], m.tag)
		}
		tx.Do(shard, "SETRANGE", tagKey(s.base, seg.Number), int64(4*at), tags)
		added = added[n:]
	}
}

// forget lets go of the batch, and keeps memory bounded.
func (p *Projection) forget() {
	p.missing, p.order = map[cacheKey]*missing{}, nil
	if len(p.projects) > maxProjects {
		p.projects = map[string]*project{}
	}
}
