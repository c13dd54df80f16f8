package dedup

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Flush moves what was judged into the store. It reaches the disk a little later, all of it together or none: see Offset.
func (s *Store) Flush() error {
	s.pollSync()
	if s.flushed == s.judged {
		return s.startSync()
	}
	entries := s.pending.entries
	slices.SortFunc(entries, func(a, b entry) int {
		if c := cmp.Compare(floorDay(a.pos.received), floorDay(b.pos.received)); c != 0 {
			return c
		}
		if c := cmp.Compare(a.key.hi, b.key.hi); c != 0 {
			return c
		}
		if c := cmp.Compare(a.key.lo, b.key.lo); c != 0 {
			return c
		}
		return cmp.Compare(a.pos.seq, b.pos.seq) // the latest is written last and stands
	})
	b := s.db.NewBatchWithSize(len(entries)*48 + 64)
	defer b.Close()
	for i := range entries {
		e := &entries[i]
		d := floorDay(e.pos.received)
		var v [3 * binary.MaxVarintLen64]byte
		val := binary.AppendUvarint(v[:0], e.pos.seq)
		val = binary.AppendUvarint(val, uint64(e.pos.index))
		val = binary.AppendUvarint(val, uint64(max(e.pos.received-d*dayMillis, 0)))
		s.buf = appendIDKey(s.buf[:0], d, e.key)
		if err := b.Set(s.buf, val, nil); err != nil {
			return fmt.Errorf("dedup: write: %w", err)
		}
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
	if err := s.db.Apply(b, nil); err != nil {
		return fmt.Errorf("dedup: write: %w", err)
	}
	s.flushed = s.judged
	s.pending.reset()
	s.verdicts = s.verdicts[:0]
	return s.startSync()
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
	oldest := floorDay(now - s.window)
	for len(s.days) > 0 && s.days[0].number < oldest {
		s.filters -= s.days[0].filter.bytes()
		s.days = s.days[1:]
	}
	ids := s.db.DeleteRange([]byte("i"), binary.BigEndian.AppendUint32([]byte("i"), uint32(oldest)), nil)
	verdicts := s.db.DeleteRange([]byte("v"), binary.BigEndian.AppendUint64([]byte("v"), firstKept), nil)
	return errors.Join(ids, verdicts)
}

// Close writes everything to disk and closes the store.
func (s *Store) Close() error {
	err := s.Flush()
	if err == nil {
		err = s.db.Flush()
	}
	return errors.Join(err, s.db.Close())
}
