package projection

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/journal"
	"github.com/rollcall/rollcall/internal/projection/dedup"
)

// record is a decoded journal record on its way through the stages.
type record struct {
	seq    uint64
	chunks []Chunk
	event.Record
}

var records = sync.Pool{New: func() any { return new(record) }}

// notice is what the callers who wait for a record are told when it is in.
type notice struct {
	header  event.Header
	byChunk map[int]journal.Notice
}

// run is the assembly line: read and decode, judge and fold, commit. Each stage works on the next batch while the one behind it is
// still busy with the last.
func (e *epoch) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	read := make(chan *record, 16)
	committed := make([][]uint64, len(e.placed))
	for i, places := range e.placed {
		for _, pl := range places {
			committed[i] = append(committed[i], pl.Offset)
		}
	}
	g.Go(func() error { return e.read(ctx, read) })
	g.Go(func() error {
		defer close(e.commits)
		return e.fold(ctx, read)
	})
	g.Go(func() error { return e.commit(ctx, committed) })
	return g.Wait()
}

func (e *epoch) read(ctx context.Context, out chan<- *record) error {
	for {
		entry, err := e.reader.Next(ctx)
		if err != nil {
			return journalError(err)
		}
		r := records.Get().(*record)
		r.seq = entry.Seq
		if err := r.Decode(entry.Data); err != nil {
			return halt("journal: record %d: %v", entry.Seq, err)
		}
		select {
		case out <- r:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// fold collects batches and hands them on.
func (e *epoch) fold(ctx context.Context, in <-chan *record) error {
	tick := time.NewTicker(idleTick)
	defer tick.Stop()
	for {
		select {
		case r := <-in:
			if err := e.batch(ctx, r, in); err != nil {
				return err
			}
		case <-tick.C:
			if err := e.upkeep(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// batch folds r and what follows it until the batch is full, the linger is over or somebody waits for an answer.
func (e *epoch) batch(ctx context.Context, r *record, in <-chan *record) error {
	b := Batch{}
	c := e.newCommit()
	linger := time.NewTimer(e.p.o.Linger)
	defer linger.Stop()
	for {
		urgent, err := e.take(r, &b, c)
		if err != nil {
			return err
		}
		if b.Events >= e.p.o.BatchEvents {
			break
		}
		if urgent {
			select {
			case r = <-in:
				continue
			default:
			}
			break
		}
		select {
		case r = <-in:
			continue
		case <-linger.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		break
	}
	c.events, c.batch = b.Events, b.Records
	for i, proj := range e.p.o.Projections {
		if err := proj.Project(ctx, &b, c.txs[i]); err != nil {
			return fmt.Errorf("projection %s: %w", proj.Name(), err)
		}
	}
	if time.Since(e.moved) >= advanceEvery {
		e.moveAll(c)
	}
	return e.hand(ctx, c)
}

// take judges one record and adds it to the batch.
func (e *epoch) take(r *record, b *Batch, c *commit) (urgent bool, err error) {
	d, err := e.p.dedup.Judge(r.seq, &r.Record)
	if err != nil {
		return false, fmt.Errorf("%w: %w", errDedup, err)
	}
	events := r.Events
	r.chunks = appendChunks(r.chunks[:0], &r.Record, &d)
	if d.Record {
		events = nil
		e.p.dups.Add(uint64(len(r.Events)))
	} else {
		if n, ok := newNotice(&r.Record, d.Events); ok {
			c.notices = append(c.notices, n)
			urgent = true
		}
		if len(d.Events) > 0 {
			events = without(events, d.Events)
			e.p.dups.Add(uint64(len(d.Events)))
		}
	}
	b.Records = append(b.Records, Record{Seq: r.seq, Received: r.Received, Events: events, Chunks: r.chunks})
	b.Events += len(events)
	c.records = append(c.records, r)
	c.upto, c.sum, c.asof = r.seq, r.Sum, r.Received
	e.last, e.sum = r.seq, r.Sum
	return urgent, nil
}

// appendChunks tells what each request of a record brought. A record that stands there twice was received once.
func appendChunks(dst []Chunk, r *event.Record, d *dedup.Duplicates) []Chunk {
	if d.Record {
		return dst
	}
	dups := d.Events
	for i := range r.Chunks {
		c := &r.Chunks[i]
		n := 0
		for n < len(dups) && dups[n] < c.First+c.Count {
			n++
		}
		dups = dups[n:]
		dst = append(dst, Chunk{Project: c.Project, Received: c.Received, Bot: c.Bot, Events: c.Count, Duplicates: n, Rejected: c.Rejected})
	}
	return dst
}

// newNotice answers the chunks whose callers wait.
func newNotice(r *event.Record, dups []int) (notice, bool) {
	n := notice{header: r.Header}
	for i, ch := range r.Chunks {
		if !ch.Notify {
			continue
		}
		if n.byChunk == nil {
			n.byChunk = map[int]journal.Notice{}
		}
		var in []int
		for _, d := range dups {
			if d >= ch.First && d < ch.First+ch.Count {
				in = append(in, d-ch.First)
			}
		}
		n.byChunk[i] = journal.Notice{Duplicates: in}
	}
	return n, n.byChunk != nil
}

// without drops the events at the given indices, in place.
func without(events []event.Event, drop []int) []event.Event {
	out := events[:drop[0]]
	for i, next := drop[0], 0; i < len(events); i++ {
		if next < len(drop) && drop[next] == i {
			next++
			continue
		}
		out = append(out, events[i])
	}
	return out
}

func (e *epoch) newCommit() *commit {
	c := &commit{upto: e.last, sum: e.sum, done: make(chan struct{})}
	// Only the channel: the commit before must not live as long as the ones behind it.
	var before chan struct{}
	if e.latest != nil {
		before = e.latest.done
	}
	barrier := func(ctx context.Context) (redis.UniversalClient, error) {
		if before != nil {
			select {
			case <-before:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return e.p.o.Redis, nil
	}
	for _, places := range e.placed {
		tx := &Tx{shards: make([]shardTx, len(places)), barrier: barrier}
		for shard, pl := range places {
			tx.shards[shard].applied = pl.Offset
		}
		c.txs = append(c.txs, tx)
	}
	return c
}

// hand gives a commit to the last stage, which takes it when it has finished the one before.
func (e *epoch) hand(ctx context.Context, c *commit) error {
	for i, tx := range c.txs {
		for shard := range tx.shards {
			if s := &tx.shards[shard]; s.touched && c.upto > s.applied {
				e.placed[i][shard].Offset = c.upto
			}
		}
	}
	select {
	case e.commits <- c:
		e.latest = c
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// moveAll moves every shard that lags up to the commit's offset.
func (e *epoch) moveAll(c *commit) {
	for _, tx := range c.txs {
		for shard := range tx.shards {
			if s := &tx.shards[shard]; s.applied <= c.upto {
				s.touched = true
			}
		}
	}
	e.moved = time.Now()
}

// upkeep runs while no batch is on: shards that lag are moved up, the time to which numbers are complete too.
func (e *epoch) upkeep(ctx context.Context) error {
	p := e.p
	if time.Since(e.flushed) >= flushEvery {
		e.flushed = time.Now()
		if err := p.dedup.Flush(); err != nil {
			return fmt.Errorf("%w: %w", errDedup, err)
		}
	}
	if !e.lags() && time.Since(e.moved) < advanceEvery {
		return nil
	}
	now := p.o.Clock.Now()
	first, last, err := p.o.Journal.Bounds(ctx)
	if err != nil {
		return fmt.Errorf("journal bounds: %w", err)
	}
	if last < e.last {
		return halt("the journal ends at record %d, but record %d was read from it: the journal has lost records", last, e.last)
	}
	if last == e.last {
		c := e.newCommit()
		c.asof = now.Add(-asofMargin).UnixMilli()
		e.moveAll(c)
		if err := e.hand(ctx, c); err != nil {
			return err
		}
	}
	if time.Since(e.trimmed) < trimEvery {
		return nil
	}
	e.trimmed = time.Now()
	if err := p.dedup.Expire(now.UnixMilli(), first); err != nil {
		return fmt.Errorf("%w: %w", errDedup, err)
	}
	if err := p.o.Journal.Trim(ctx, min(p.offset.Load(), p.dedup.Offset())); err != nil {
		return fmt.Errorf("trim journal: %w", err)
	}
	return nil
}

// lags tells whether a shard is behind the last record folded.
func (e *epoch) lags() bool {
	for _, places := range e.placed {
		for _, pl := range places {
			if pl.Offset < e.last {
				return true
			}
		}
	}
	return false
}

// commit is the last stage. committed is the offset by projection and shard.
func (e *epoch) commit(ctx context.Context, committed [][]uint64) error {
	for c := range e.commits {
		if err := e.write(ctx, c); err != nil {
			return err
		}
		low := c.upto
		for i, tx := range c.txs {
			for shard := range tx.shards {
				if tx.shards[shard].touched {
					committed[i][shard] = max(committed[i][shard], c.upto)
				}
				low = min(low, committed[i][shard])
			}
		}
		e.p.offset.Store(low)
		e.p.asof.Store(c.asof)
		close(c.done)
		if e.p.o.Committed != nil {
			e.p.o.Committed(c.batch)
		}
		for _, n := range c.notices {
			if err := e.p.o.Journal.Announce(n.header, n.byChunk); err != nil {
				e.p.o.Log.Warn("a caller who waits could not be told", "err", err)
			}
		}
		e.p.events.Add(uint64(c.events))
		for _, r := range c.records {
			records.Put(r)
		}
	}
	return ctx.Err()
}

// sumAt reads the checksum of a record.
func (e *epoch) sumAt(ctx context.Context, seq uint64) (uint32, error) {
	entry, err := e.p.o.Journal.Get(ctx, seq)
	if err != nil {
		return 0, journalError(err)
	}
	_, sum, err := event.ReadHeader(entry.Data)
	if err != nil {
		return 0, halt("journal: record %d: %v", seq, err)
	}
	return sum, nil
}
