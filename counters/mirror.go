package counters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/projection"
)

const (
	mirrorAfter = 64  // adds in an epoch after which a sketch gets a mirror
	addUsers    = 500 // most users in one PFADD
	loadAtOnce  = 256 // sketches read in one pipeline, 12 KB each
)

// sketch is one stored HyperLogLog as this epoch knows it. Its mirror, if it has one, holds registers that Redis has or will have when this
// batch is committed; so a user who changes none need not be sent. See docs/adr/0006-sketch-mirror.md.
type sketch struct {
	key    any // the Redis key, a string
	mirror *registers
	adds   int    // in this epoch
	seen   uint32 // the batch that touched it last

	// Of the batch seen.
	batchAdds int
	received  int64    // latest receive time of an add
	pending   []user   // added while there was no mirror
	send      []string // those who change a register

	expiry int64 // set in this epoch, unix milliseconds; 0 = not yet
}

type user struct {
	name string
	mark mark
}

// add is the hot path. It returns false if the mirror shows that the user changes nothing.
func (s *sketch) add(name string, m mark) bool {
	s.batchAdds++
	if s.mirror == nil {
		s.pending = append(s.pending, user{name, m})
		return true
	}
	r := &s.mirror[m.register%hllRegisters]
	if *r >= m.value {
		return false
	}
	*r = m.value
	s.send = append(s.send, name)
	return true
}

// mirrors bounds the memory of all mirrors.
type mirrors struct {
	limit  int       // mirrors at most
	held   []*sketch // those that have a mirror
	free   []*registers
	misses registers // all zero between uses: filters the users of a sketch without a mirror
}

// drop forgets a mirror. That is always safe: the sketch's users are sent again.
func (m *mirrors) drop(s *sketch) {
	if s.mirror == nil {
		return
	}
	m.free = append(m.free, s.mirror)
	s.mirror = nil
	i := slices.Index(m.held, s)
	m.held = slices.Delete(m.held, i, i+1)
}

// makeRoom drops the mirrors that were used longest ago, never one of this batch, until n more fit; it returns how many do.
func (m *mirrors) makeRoom(n int, batch uint32) int {
	room := m.limit - len(m.held)
	if room >= n {
		return n
	}
	slices.SortFunc(m.held, func(a, b *sketch) int { return int(int32(b.seen - a.seen)) }) // newest first
	keep := max(0, min(len(m.held), m.limit-max(n, m.limit/8)))
	for keep < len(m.held) && m.held[keep].seen == batch {
		keep++
	}
	for _, s := range m.held[keep:] {
		m.free = append(m.free, s.mirror)
		s.mirror = nil
	}
	clear(m.held[keep:])
	m.held = m.held[:keep]
	return min(n, max(0, m.limit-keep))
}

func (m *mirrors) take() *registers {
	if n := len(m.free); n > 0 {
		r := m.free[n-1]
		m.free = m.free[:n-1]
		return r
	}
	return new(registers)
}

// load gives mirrors to the sketches of this batch that have earned one, as far as there is room, and decides about their pending users.
func (m *mirrors) load(ctx context.Context, touched []*sketch, batch uint32, tx *projection.Tx) error {
	var wanted []*sketch
	for _, s := range touched {
		if s.mirror == nil && s.adds+s.batchAdds >= mirrorAfter {
			wanted = append(wanted, s)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	if wanted = wanted[:m.makeRoom(len(wanted), batch)]; len(wanted) == 0 {
		return nil
	}
	rdb, err := tx.Read(ctx)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(wanted, loadAtOnce) {
		if err := m.loadPart(ctx, rdb, part); err != nil {
			return err
		}
	}
	return nil
}

func (m *mirrors) loadPart(ctx context.Context, rdb redis.UniversalClient, part []*sketch) error {
	gets, ttls := make([]*redis.StringCmd, len(part)), make([]*redis.DurationCmd, len(part))
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, s := range part {
			gets[i], ttls[i] = p.Get(ctx, s.key.(string)), p.PTTL(ctx, s.key.(string))
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("load sketches: %w", err)
	}
	for i, s := range part {
		stored, err := gets[i].Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("load sketch %s: %w", s.key, err)
		}
		ttl, err := ttls[i].Result()
		if err != nil {
			return fmt.Errorf("load sketch %s: %w", s.key, err)
		}
		if ttl >= 0 && ttl < time.Hour {
			continue // it may be gone before the commit, and a mirror of it would hide users from its successor
		}
		r := m.take()
		if err := r.read(stored); err != nil {
			return fmt.Errorf("load sketch %s: %w", s.key, err)
		}
		s.mirror = r
		m.held = append(m.held, s)
		for _, u := range s.pending {
			if c := &r[u.mark.register]; *c < u.mark.value {
				*c = u.mark.value
				s.send = append(s.send, u.name)
			}
		}
		s.pending = s.pending[:0]
	}
	return nil
}

// flush writes the sketch's changes of this batch.
func (m *mirrors) flush(s *sketch, shard int, until int64, tx *projection.Tx) {
	if s.batchAdds == 0 {
		return
	}
	// Without a mirror: of the users of the batch, those who matter if the sketch were empty.
	for _, u := range s.pending {
		if c := &m.misses[u.mark.register]; *c < u.mark.value {
			*c = u.mark.value
			s.send = append(s.send, u.name)
		}
	}
	for _, u := range s.pending {
		m.misses[u.mark.register] = 0
	}
	for part := range slices.Chunk(s.send, addUsers) {
		args := make([]any, 2, 2+len(part))
		args[0], args[1] = "PFADD", s.key
		for _, name := range part {
			args = append(args, name)
		}
		tx.Do(shard, args...)
	}
	if until > s.expiry {
		tx.Do(shard, "EXPIREAT", s.key, until/1000)
		s.expiry = until
	}
	s.adds += s.batchAdds
	s.batchAdds = 0
	s.send, s.pending = emptied(s.send), emptied(s.pending)
}

// emptied keeps a small slice for the next batch, and lets what it points to go.
func emptied[T any](s []T) []T {
	if cap(s) > 256 {
		return nil
	}
	clear(s)
	return s[:0]
}
