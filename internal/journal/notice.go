package journal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/rollcall/rollcall/internal/event"
)

var errGivenUp = errors.New("journal: the wait for a notice was given up, because the append's context ended or the journal closed")

// maxWaiters bounds the callers that wait for a notice at one time.
const maxWaiters = 1 << 16

// Notice is what the projector tells about one chunk after its commit.
type Notice struct {
	Duplicates []int // indices within the chunk, ascending
}

// waiter is one caller that wants to know when its chunk is applied.
type waiter struct {
	index  int    // of its chunk, set with number
	number uint64 // of its record, 0 = not known yet
	notice chan Notice
	stop   func() bool // of the context's callback
}

// waiters are those of one process. A waiter is registered under its record's number before the record is published, and
// leaves when it is told, or when the context of its Append or of its Applied ends.
type waiters struct {
	mu      sync.Mutex
	count   int
	closed  bool
	records map[uint64][]*waiter
}

func (ws *waiters) init() { ws.records = make(map[uint64][]*waiter) }

func (ws *waiters) add(ctx context.Context) (*waiter, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.closed {
		return nil, errClosed
	}
	if ws.count >= maxWaiters {
		return nil, errBusy
	}
	ws.count++
	w := &waiter{notice: make(chan Notice, 1)}
	w.stop = context.AfterFunc(ctx, func() { ws.remove(w) })
	return w, nil
}

// expect registers the waiters of a record that is about to be published.
func (ws *waiters) expect(number uint64, list []*waiter) {
	if len(list) == 0 {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	live := list[:0]
	for _, w := range list {
		if w.stop != nil {
			w.number = number
			live = append(live, w)
		}
	}
	if len(live) > 0 {
		ws.records[number] = live
	}
}

// remove takes one waiter out; a second call does nothing.
func (ws *waiters) remove(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if !ws.drop(w) {
		return
	}
	close(w.notice)
	if list := ws.records[w.number]; len(list) > 1 {
		ws.records[w.number] = slices.DeleteFunc(list, func(o *waiter) bool { return o == w })
	} else if len(list) == 1 && list[0] == w {
		delete(ws.records, w.number)
	}
}

// drop ends a waiter's stay in the count. The lock is held.
func (ws *waiters) drop(w *waiter) bool {
	if w.stop == nil {
		return false
	}
	w.stop()
	w.stop = nil
	ws.count--
	return true
}

// forget takes out all waiters of a record that was not stored.
func (ws *waiters) forget(number uint64) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.records[number] {
		if ws.drop(w) {
			close(w.notice)
		}
	}
	delete(ws.records, number)
}

func (ws *waiters) close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.closed = true
	for number, list := range ws.records {
		for _, w := range list {
			if ws.drop(w) {
				close(w.notice)
			}
		}
		delete(ws.records, number)
	}
}

// Applied waits until the projector has committed the chunk, in this process or another. It fails when ctx ends, when the
// context of the Append ends, when the journal closes, and at once if the chunk was appended without Notify. Call it once.
func (r *Receipt) Applied(ctx context.Context) (Notice, error) {
	if r.waiter == nil {
		return Notice{}, errors.New("journal: appended without Notify")
	}
	defer r.leave()
	select {
	case n, ok := <-r.waiter.notice:
		if !ok {
			return Notice{}, errGivenUp
		}
		return n, nil
	case <-ctx.Done():
		return Notice{}, ctx.Err()
	}
}

func (r *Receipt) leave() {
	if r.waiter != nil {
		r.waiters.remove(r.waiter)
	}
}

func appliedSubject(producer uint64) string {
	return "rollcall.applied." + strconv.FormatUint(producer, 16)
}

// Announce tells the producer of a record that all its chunks are applied. byChunk holds the chunks with duplicates; a chunk
// that is not in it had none. Announcing is best effort: who is not told waits until its deadline.
func (j *Journal) Announce(h event.Header, byChunk map[int]Notice) error {
	if err := j.nc.Publish(appliedSubject(h.Producer), appendNotices(nil, h.Number, byChunk)); err != nil {
		return fmt.Errorf("journal: announcing record %d: %w", h.Number, err)
	}
	return nil
}

// receive takes one announcement.
func (ws *waiters) receive(m *nats.Msg) {
	number, byChunk, err := parseNotices(m.Data)
	if err != nil {
		return // not from us: the subject is open to every client of the server
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.records[number] {
		if ws.drop(w) {
			w.notice <- byChunk[w.index]
		}
	}
	delete(ws.records, number)
}

// appendNotices encodes an announcement: version 1, number, then for each chunk index, count, and the ascending duplicate
// indices as differences; all uvarint.
func appendNotices(dst []byte, number uint64, byChunk map[int]Notice) []byte {
	dst = append(dst, 1)
	dst = binary.AppendUvarint(dst, number)
	for chunk, n := range byChunk {
		if len(n.Duplicates) == 0 {
			continue
		}
		dst = binary.AppendUvarint(dst, uint64(chunk))
		dst = binary.AppendUvarint(dst, uint64(len(n.Duplicates)))
		last := 0
		for _, d := range n.Duplicates {
			dst = binary.AppendUvarint(dst, uint64(d-last))
			last = d
		}
	}
	return dst
}

var errBadNotice = errors.New("journal: unreadable notice")

func parseNotices(b []byte) (number uint64, byChunk map[int]Notice, err error) {
	if len(b) < 2 || b[0] != 1 {
		return 0, nil, errBadNotice
	}
	b = b[1:]
	next := func() (v uint64) {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			err = errBadNotice
			b = nil
			return 0
		}
		b = b[n:]
		return v
	}
	number = next()
	for len(b) > 0 && err == nil {
		chunk, count := next(), next()
		if chunk > maxGroupChunks || count > uint64(len(b)) {
			return 0, nil, errBadNotice
		}
		dups := make([]int, count)
		last := uint64(0)
		for i := range dups {
			last += next()
			if last > 1<<31 {
				return 0, nil, errBadNotice
			}
			dups[i] = int(last)
		}
		if byChunk == nil {
			byChunk = make(map[int]Notice)
		}
		byChunk[int(chunk)] = Notice{Duplicates: dups}
	}
	return number, byChunk, err
}
