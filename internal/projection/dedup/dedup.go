// Package dedup remembers which event ids the journal has held, and where each stood first.
//
// An id is kept for a window after it was first received. The store lives beside the projector and can be lost: everything in
// it follows from the journal, and Offset tells from where to read again. The verdict on a record is kept as well, so that a
// record which is read a second time, after a crash or a failover, gets the same answer without a look at its ids.
package dedup

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/zeebo/xxh3"

	"github.com/rollcall/rollcall/internal/event"
)

const (
	version = 1

	dayMillis = 24 * 60 * 60 * 1000

	flushEntries = 1 << 17 // entries held in memory before they go to the store

	// Ids come in random order. Stored one by one, each would be a key of its own to be sorted, written and merged again and
	// again; in groups, a flush appends some dozens to a value at a time (Pebble's merge), about ten times cheaper.
	groupBits = 13
)

// key is the hash of an id within its project, or of a record's producer and number.
type key struct{ hi, lo uint64 }

// Options say where the store is and how long an id is kept.
type Options struct {
	Dir         string
	Identity    string        // the journal's: a store made from another journal is thrown away
	Window      time.Duration // how long an id is remembered after it was first received
	FilterBytes int           // memory for the filters; 0 = 256 MiB, enough for about 130 M ids
}

// Store judges records. It is not safe for concurrent use.
type Store struct {
	db     *pebble.DB
	dir    string
	seed   uint64
	window int64 // ms

	days    []day // ascending by day, those that can still hold an id inside the window
	filters int   // bytes of all filters
	room    int   // bytes they may take

	pending  pending
	verdicts []verdict
	judged   uint64 // every record up to it has been judged
	flushed  uint64 // … and is in the store, though maybe not on disk yet
	durable  uint64 // … and is on disk

	syncing   <-chan struct{}
	syncingTo uint64

	buf, value []byte
	order      []uint32
}

type day struct {
	number int64
	filter filter
}

type verdict struct {
	seq uint64
	dup Duplicates
}

// Duplicates is the verdict on one record.
type Duplicates struct {
	Record bool  // the record itself stands in the journal a second time
	Events []int // indices of the events whose id was seen before, ascending
}

// Open opens the store in o.Dir, or makes it. A store of another journal or version, or a damaged one, is removed and begun anew:
// Offset is then 0. ErrNoRoom leaves it as it is.
func Open(o Options) (*Store, error) {
	s, err := open(o)
	if err == nil || errors.Is(err, ErrNoRoom) {
		return s, err
	}
	if rmErr := os.RemoveAll(o.Dir); rmErr != nil {
		return nil, errors.Join(fmt.Errorf("dedup: open %s: %w", o.Dir, err), rmErr)
	}
	s, err = open(o)
	if err != nil {
		return nil, fmt.Errorf("dedup: make %s: %w", o.Dir, err)
	}
	return s, nil
}

func open(o Options) (*Store, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := room(o.Dir); err != nil {
		return nil, err
	}
	opts := &pebble.Options{
		// The journal is the log: what the store loses in a crash is read there again.
		DisableWAL:            true,
		MemTableSize:          8 << 20,
		CacheSize:             16 << 20,
		L0CompactionThreshold: 16,
		L0StopWritesThreshold: 64,
		LBaseMaxBytes:         256 << 20,
		FormatMajorVersion:    pebble.FormatNewest,
		Logger:                quiet{},
		// Without one, Pebble ends the process at the first damaged block. The fault comes back as an error as well.
		EventListener: &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}},
	}
	for i := range opts.Levels {
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		opts.Levels[i].Compression = func() *block.CompressionProfile { return block.NoCompression }
	}
	db, err := pebble.Open(o.Dir, opts)
	if err != nil {
		return nil, err
	}
	s := &Store{db: db, dir: o.Dir, window: o.Window.Milliseconds(), room: o.FilterBytes}
	if s.room == 0 {
		s.room = 256 << 20
	}
	if err := s.load(o.Identity); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

func (s *Store) load(identity string) error {
	meta, closer, err := s.db.Get([]byte("m"))
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		var b [9]byte
		b[0] = version
		if _, err := rand.Read(b[1:]); err != nil {
			return err
		}
		s.seed = binary.BigEndian.Uint64(b[1:])
		return s.db.Set([]byte("m"), append(b[:], identity...), pebble.NoSync)
	case err != nil:
		return err
	}
	defer closer.Close()
	if len(meta) < 9 || meta[0] != version || string(meta[9:]) != identity {
		return errors.New("made from another journal or by another version")
	}
	s.seed = binary.BigEndian.Uint64(meta[1:])
	if b, closer, err := s.db.Get([]byte("o")); err == nil {
		s.durable = binary.BigEndian.Uint64(b)
		if err := closer.Close(); err != nil {
			return err
		}
	} else if !errors.Is(err, pebble.ErrNotFound) {
		return err
	}
	s.judged, s.flushed = s.durable, s.durable
	return s.loadFilters()
}

// loadFilters reads every id of the window.
func (s *Store) loadFilters() error {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte("i"), UpperBound: []byte("j")})
	if err != nil {
		return err
	}
	for it.First(); it.Valid(); it.Next() {
		k := it.Key()
		if len(k) != 7 {
			return errors.Join(errors.New("damaged key"), it.Close())
		}
		number := int64(binary.BigEndian.Uint32(k[1:]))
		d := s.day(number)
		for b := it.Value(); len(b) > 0; {
			e, rest, ok := cutEntry(b, number)
			if !ok {
				return errors.Join(errDamaged, it.Close())
			}
			s.filters += d.filter.add(e.key, s.room-s.filters)
			b = rest
		}
	}
	return errors.Join(it.Error(), it.Close())
}

// Offset is the last record whose verdict, and every one before it, is on disk: after a restart reading goes on behind it.
func (s *Store) Offset() uint64 { return s.durable }

// Judge tells which events of a record are duplicates, and remembers the record's ids. Records come in journal order; one that was
// judged before gets the same verdict again. A record at a place that leaves a gap is an error.
func (s *Store) Judge(seq uint64, r *event.Record) (Duplicates, error) {
	if seq <= s.judged {
		return s.recall(seq)
	}
	if seq != s.judged+1 {
		return Duplicates{}, fmt.Errorf("dedup: record %d comes after record %d", seq, s.judged)
	}
	pos := position{seq: seq, received: r.Received}
	var d Duplicates
	dup, err := s.seen(s.recordKey(r.Producer, r.Number), pos)
	if err != nil {
		return d, err
	}
	if dup {
		d.Record = true
	} else {
		project, seed := "", s.seed
		for i := range r.Events {
			e := &r.Events[i]
			if e.ID == "" {
				continue
			}
			if e.Project != project {
				project, seed = e.Project, xxh3.HashStringSeed(e.Project, s.seed)
			}
			h := xxh3.HashString128Seed(e.ID, seed)
			pos.index = uint32(i)
			pos.received = e.Received
			dup, err := s.seen(key{h.Hi, h.Lo}, pos)
			if err != nil {
				return d, err
			}
			if dup {
				d.Events = append(d.Events, i)
			}
		}
	}
	if d.Record || len(d.Events) > 0 {
		s.verdicts = append(s.verdicts, verdict{seq, d})
	}
	s.judged = seq
	if len(s.pending.entries) >= flushEntries {
		return d, s.Flush()
	}
	return d, nil
}

// Skip tells the store that reading starts behind seq although records before it were never judged: the journal no longer has
// them. Ids that stood only there are new again.
func (s *Store) Skip(seq uint64) { s.judged = max(s.judged, seq) }

func (s *Store) recordKey(producer, number uint64) key {
	var b [17]byte
	binary.BigEndian.PutUint64(b[1:], producer)
	binary.BigEndian.PutUint64(b[9:], number)
	h := xxh3.Hash128Seed(b[:], ^s.seed)
	return key{h.Hi, h.Lo}
}

// seen tells whether k was received before within the window; if not, pos becomes its first position.
func (s *Store) seen(k key, pos position) (bool, error) {
	oldest := floorDay(pos.received - s.window)
	maybe := false
	for i := len(s.days) - 1; i >= 0 && s.days[i].number >= oldest; i-- {
		if s.days[i].filter.has(k) {
			maybe = true
			break
		}
	}
	if maybe {
		first, ok, err := s.find(k, oldest)
		if err != nil {
			return false, err
		}
		if ok && first.before(pos) && pos.received-first.received < s.window {
			return true, nil
		}
	}
	d := s.day(floorDay(pos.received))
	s.filters += d.filter.add(k, s.room-s.filters)
	s.pending.add(k, pos)
	return false, nil
}

// find returns the latest position of k on any day from oldest on.
func (s *Store) find(k key, oldest int64) (position, bool, error) {
	if p, ok := s.pending.get(k); ok {
		return p, true, nil
	}
	for i := len(s.days) - 1; i >= 0 && s.days[i].number >= oldest; i-- {
		d := &s.days[i]
		if !d.filter.has(k) {
			continue
		}
		p, ok, err := s.stored(d.number, k)
		if err != nil || ok {
			return p, ok, err
		}
	}
	return position{}, false, nil
}

// stored returns the latest position of k that is in the store under a day.
func (s *Store) stored(day int64, k key) (p position, found bool, err error) {
	s.buf = appendGroupKey(s.buf[:0], day, k.group())
	v, closer, err := s.db.Get(s.buf)
	if errors.Is(err, pebble.ErrNotFound) {
		return p, false, nil
	}
	if err != nil {
		return p, false, fmt.Errorf("dedup: read id: %w", err)
	}
	defer closer.Close()
	for len(v) > 0 {
		e, rest, ok := cutEntry(v, day)
		if !ok {
			return p, false, errDamaged
		}
		if e.key == k {
			p, found = e.pos, true
		}
		v = rest
	}
	return p, found, nil
}

// day returns the filter of a day, making room for it; times before 1970 share day 0.
func (s *Store) day(number int64) *day {
	i := len(s.days)
	for i > 0 && s.days[i-1].number > number {
		i--
	}
	if i > 0 && s.days[i-1].number == number {
		return &s.days[i-1]
	}
	s.days = slices.Insert(s.days, i, day{number: number})
	return &s.days[i]
}

func floorDay(ms int64) int64 { return max(ms, 0) / dayMillis }

// recall reads the verdict on a record that was judged before.
func (s *Store) recall(seq uint64) (Duplicates, error) {
	if i, ok := slices.BinarySearchFunc(s.verdicts, seq, func(v verdict, q uint64) int {
		return int(min(max(int64(v.seq)-int64(q), -1), 1))
	}); ok {
		return s.verdicts[i].dup, nil
	}
	v, closer, err := s.db.Get(binary.BigEndian.AppendUint64([]byte("v"), seq))
	if errors.Is(err, pebble.ErrNotFound) {
		return Duplicates{}, nil
	}
	if err != nil {
		return Duplicates{}, fmt.Errorf("dedup: read verdict: %w", err)
	}
	d, ok := decodeDuplicates(v)
	if err := closer.Close(); err != nil {
		return d, err
	}
	if !ok {
		return d, fmt.Errorf("dedup: damaged verdict on record %d", seq)
	}
	return d, nil
}

// quiet drops what the store says: faults come back as errors.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf("dedup store: "+format, args...))
}
