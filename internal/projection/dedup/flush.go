package dedup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// Flush moves what was judged into the store. It reaches the disk a little later, all of it together or none: see Offset.
func (s *Store) Flush() error {
	s.pollSync()
	if err := room(s.dir); err != nil {
		return err
	}
	if s.flushed == s.judged {
		return s.startSync()
	}
	b := s.db.NewBatchWithSize(len(s.pending.entries)*32 + 64)
	defer b.Close()
	if err := s.appendIDs(b); err != nil {
		return fmt.Errorf("dedup: write: %w", err)
	}
	for _, v := range s.verdicts {
		s.buf = binary.BigEndian.AppendUint64(append(s.buf[:0], 'v'), v.seq)
		if err := b.Set(s.buf, v.dup.append(nil), nil); err != nil {
			return fmt.Errorf("dedup: write: %w", err)
		}
	}
	if err := b.Set([]byte("o"), binary.BigEndian.AppendUint64(nil, s.judged), nil); err != nil {
		return fmt.Errorf("dedup: write: %w", err)
	}
	if err := s.db.Apply(b, pebble.NoSync); err != nil {
		return fmt.Errorf("dedup: write: %w", err)
	}
	s.flushed = s.judged
	s.pending.reset()
	s.verdicts = s.verdicts[:0]
	return s.startSync()
}

// appendIDs adds the pending entries to their groups, day by day. Within a group they keep their order.
func (s *Store) appendIDs(b *pebble.Batch) error {
	entries := s.pending.entries
	var days []int64
	for i := range entries {
		if d := floorDay(entries[i].pos.received); !slices.Contains(days, d) {
			days = append(days, d)
		}
	}
	s.order = slices.Grow(s.order[:0], len(entries))[:len(entries)]
	for _, d := range days {
		var start [1<<groupBits + 1]uint32
		for i := range entries {
			if e := &entries[i]; floorDay(e.pos.received) == d {
				start[e.key.group()+1]++
			}
		}
		for g := range 1 << groupBits {
			start[g+1] += start[g]
		}
		end := start
		for i := range entries {
			if e := &entries[i]; floorDay(e.pos.received) == d {
				g := e.key.group()
				s.order[end[g]] = uint32(i)
				end[g]++
			}
		}
		for g := range 1 << groupBits {
			if start[g] == end[g] {
				continue
			}
			s.value = s.value[:0]
			for _, i := range s.order[start[g]:end[g]] {
				s.value = appendEntry(s.value, &entries[i], d)
			}
			s.buf = appendGroupKey(s.buf[:0], d, g)
			if err := b.Merge(s.buf, s.value, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// startSync asks for what is flushed to go to disk, one request at a time.
func (s *Store) startSync() error {
	if s.syncing != nil || s.durable == s.flushed {
		return nil
	}
	done, err := s.db.AsyncFlush()
	if err != nil {
		return fmt.Errorf("dedup: flush: %w", err)
	}
	s.syncing, s.syncingTo = done, s.flushed
	return nil
}

func (s *Store) pollSync() {
	select {
	case <-s.syncing:
		s.durable, s.syncing = s.syncingTo, nil
	default:
	}
}

// Expire forgets the ids whose window ended before now (unix milliseconds) and the verdicts on records before firstKept, which the
// journal no longer has.
func (s *Store) Expire(now int64, firstKept uint64) error {
	if err := room(s.dir); err != nil {
		return err
	}
	oldest := floorDay(now - s.window)
	for len(s.days) > 0 && s.days[0].number < oldest {
		s.filters -= s.days[0].filter.bytes()
		s.days = s.days[1:]
	}
	ids := s.db.DeleteRange([]byte("i"), binary.BigEndian.AppendUint32([]byte("i"), uint32(oldest)), pebble.NoSync)
	verdicts := s.db.DeleteRange([]byte("v"), binary.BigEndian.AppendUint64([]byte("v"), firstKept), pebble.NoSync)
	return errors.Join(ids, verdicts)
}

// Close writes everything to disk and closes the store.
func (s *Store) Close() error {
	err := s.Flush()
	switch {
	case err == nil:
		err = s.db.Flush()
	case errors.Is(err, ErrNoRoom):
		err = nil // what is not written is read from the journal again
	}
	return errors.Join(err, s.db.Close())
}
