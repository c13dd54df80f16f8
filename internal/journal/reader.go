package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	readAhead = 20 << 20        // bytes asked for ahead of the reader; above the largest record, or that would never come
	idleCheck = 2 * time.Second // without a record: ask the server whether there should be one
)

// Reader returns the records one after the other, in order and without a hole. It is for one goroutine.
//
// It survives reconnects and restarts of the server: it goes on at the next sequence.
type Reader struct {
	j    *Journal
	next uint64
	iter jetstream.MessagesContext // nil = not attached
	name string                    // of the ephemeral consumer behind iter
	tick time.Duration
}

// Read opens a reader that starts at from. Errors: ErrBeforeFirst, ErrBeyondEnd (from > last+1).
func (j *Journal) Read(ctx context.Context, from uint64) (*Reader, error) {
	first, last, err := j.Bounds(ctx)
	switch {
	case err != nil:
		return nil, err
	case from < first:
		return nil, fmt.Errorf("%w: %d < %d", ErrBeforeFirst, from, first)
	case from > last+1:
		return nil, fmt.Errorf("%w: %d > %d", ErrBeyondEnd, from, last)
	}
	r := &Reader{j: j, next: from, tick: idleCheck}
	if err := r.attach(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// attach makes an ephemeral consumer that starts at the next sequence. Nothing is acknowledged to it: the reader's caller owns
// the offset.
func (r *Reader) attach(ctx context.Context) error {
	c, err := r.j.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       max(r.next, 1),
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: time.Minute,
	})
	if err != nil {
		return fmt.Errorf("journal: opening a reader: %w", err)
	}
	r.name = c.CachedInfo().Name
	r.iter, err = c.Messages(jetstream.PullMaxBytes(readAhead), jetstream.PullExpiry(30*time.Second), jetstream.PullHeartbeat(5*time.Second))
	if err != nil {
		return fmt.Errorf("journal: opening a reader: %w", err)
	}
	return nil
}

func (r *Reader) detach() {
	if r.iter != nil {
		r.iter.Stop()
		r.iter = nil
	}
}

// Close ends the reader.
func (r *Reader) Close() error {
	if r.iter == nil {
		return nil
	}
	r.detach()
	ctx, cancel := context.WithTimeout(r.j.life, time.Second)
	defer cancel()
	err := r.j.stream.DeleteConsumer(ctx, r.name)
	if err != nil && (errors.Is(err, jetstream.ErrConsumerNotFound) || r.j.life.Err() != nil || r.j.nc.IsClosed()) {
		return nil
	}
	return err
}

// Next waits for the next record. The entry's bytes are the caller's.
//
// Errors: ErrGap when the server no longer has the record but has later ones; ErrLostRecords when the server's end has fallen
// below what was acknowledged; event.ErrDamaged when the record's checksum fails; event.ErrVersion; ErrBeforeFirst when the
// record was trimmed meanwhile; ErrClosed; ctx's. After an error other
// than ctx's the reader is of no more use.
func (r *Reader) Next(ctx context.Context) (Entry, error) {
	for attempt := 0; ; {
		if err := r.j.life.Err(); err != nil {
			return Entry{}, ErrClosed
		}
		if r.iter == nil {
			if err := r.attach(ctx); err != nil {
				if err := r.pause(ctx, attempt, err); err != nil {
					return Entry{}, err
				}
				attempt++
				continue
			}
		}
		tick, cancel := context.WithTimeout(ctx, r.tick)
		msg, err := r.iter.Next(jetstream.NextContext(tick))
		cancel()
		switch {
		case err == nil:
			meta, err := msg.Metadata()
			if err != nil {
				return Entry{}, fmt.Errorf("journal: %w", err)
			}
			switch seq := meta.Sequence.Stream; {
			case seq == r.next:
				r.next++
				return r.j.entry(seq, msg.Subject(), msg.Data())
			case seq > r.next:
				if err := r.explain(ctx, attempt); err != nil {
					return Entry{}, err
				}
				attempt++
			}
		case ctx.Err() != nil:
			return Entry{}, ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			if err := r.idle(ctx, attempt); err != nil {
				return Entry{}, err
			}
			attempt++
		default:
			r.detach()
			if err := r.pause(ctx, attempt, err); err != nil {
				return Entry{}, err
			}
			attempt++
		}
	}
}

// idle asks whether a record should have come.
func (r *Reader) idle(ctx context.Context, attempt int) error {
	_, last, err := r.j.Bounds(ctx)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, ErrLostRecords):
		return err
	case err != nil:
		return nil // not reachable now: the connection reconnects by itself
	case r.next > last+1:
		return fmt.Errorf("%w: next is %d, the server's end is %d", ErrBeyondEnd, r.next, last)
	case r.next == last+1:
		return nil
	}
	return r.explain(ctx, attempt)
}

// explain finds out why the next record did not come although there are later ones: if it is gone for good the error says so,
// otherwise the delivery failed and the reader attaches anew.
func (r *Reader) explain(ctx context.Context, attempt int) error {
	r.detach()
	_, err := r.j.Get(ctx, r.next)
	switch {
	case err == nil:
		return r.pause(ctx, attempt, errors.New("a record was not delivered"))
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, ErrGap), errors.Is(err, ErrBeforeFirst), errors.Is(err, ErrBeyondEnd), errors.Is(err, ErrLostRecords):
		return err
	}
	return r.pause(ctx, attempt, err)
}

// pause waits before the next attempt, longer each time.
func (r *Reader) pause(ctx context.Context, attempt int, cause error) error {
	r.j.log.Debug("a journal reader attaches anew", "next", r.next, "attempt", attempt+1, "cause", cause)
	t := time.NewTimer(backoff(attempt))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.j.life.Done():
		return ErrClosed
	}
}
