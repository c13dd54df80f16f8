package journal

import (
	"sync"
)

const (
	maxWaitingBytes  = 64 << 20 // chunks that are not acknowledged yet; beyond, appends are refused as journal_busy
	maxWaitingChunks = 1 << 16
	maxGroupChunks   = 4096
)

// group is the chunks that will share one record, one publish and one fsync.
type group struct {
	buf    []byte // the chunks, one after the other
	ends   []int  // where each chunk ends in buf
	notify []*waiter
	done   chan struct{} // closed when seq or err is set
	seq    uint64
	err    error
	chunks [][]byte // scratch of the writer
}

// split cuts buf into the chunks.
func (g *group) split() [][]byte {
	g.chunks = g.chunks[:0]
	start := 0
	for _, end := range g.ends {
		g.chunks = append(g.chunks, g.buf[start:end])
		start = end
	}
	return g.chunks
}

// queue collects chunks into groups while the writer is busy.
type queue struct {
	mu     sync.Mutex
	wake   sync.Cond
	groups []*group // the last one may still grow
	bytes  int      // of all chunks that are not acknowledged
	chunks int
	limit  int // of bytes in one group
	closed bool
	spare  sync.Pool // of group buffers
}

func (q *queue) init(limit int) {
	q.limit = limit
	q.wake.L = &q.mu
}

// add copies a chunk into the group that is written next or later, and returns the group and the chunk's place in it. It
// refuses when too much waits (errBusy) and when the journal is closing (errClosed).
func (q *queue) add(data []byte, w *waiter) (*group, int, error) {
	large := len(data) > q.limit
	if large {
		data = append([]byte(nil), data...) // outside the lock; it gets a group of its own
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, 0, errClosed
	}
	if q.chunks >= maxWaitingChunks || q.bytes > 0 && q.bytes+len(data) > maxWaitingBytes {
		return nil, 0, errBusy
	}
	q.bytes += len(data)
	q.chunks++

	var g *group
	if n := len(q.groups); n > 0 {
		if last := q.groups[n-1]; !large && len(last.buf)+len(data) <= q.limit && len(last.ends) < maxGroupChunks {
			g = last
		}
	}
	if g == nil {
		g = &group{done: make(chan struct{})}
		if large {
			g.buf, data = data, nil
		} else if b, ok := q.spare.Get().(*[]byte); ok {
			g.buf = (*b)[:0]
		}
		q.groups = append(q.groups, g)
		q.wake.Signal()
	}
	g.buf = append(g.buf, data...)
	g.ends = append(g.ends, len(g.buf))
	if w != nil {
		w.index = len(g.ends) - 1
		g.notify = append(g.notify, w)
	}
	return g, len(g.ends) - 1, nil
}

// next waits for a group and takes it out, so that it grows no more. It returns nil when the queue is closed and empty.
func (q *queue) next() *group {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.groups) == 0 {
		if q.closed {
			return nil
		}
		q.wake.Wait()
	}
	g := q.groups[0]
	n := copy(q.groups, q.groups[1:])
	q.groups[n] = nil
	q.groups = q.groups[:n]
	return g
}

// settle answers everyone in the group.
func (q *queue) settle(g *group, seq uint64, err error) {
	g.seq, g.err = seq, err
	q.mu.Lock()
	q.bytes -= len(g.buf)
	q.chunks -= len(g.ends)
	q.mu.Unlock()
	if cap(g.buf) <= 2*q.limit {
		buf := g.buf
		q.spare.Put(&buf)
	}
	g.buf, g.chunks, g.ends = nil, nil, nil
	close(g.done)
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake.Broadcast()
}

func (q *queue) waiting() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return int64(q.bytes)
}
