package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
)

// ack is the server's answer to one attempt.
type ack struct {
	seq uint64
	err error
}

// publisher sends records and routes the answers. All attempts of a record share one reply subject, so a late answer to the
// first attempt settles the second.
type publisher struct {
	nc      *nats.Conn
	subject string
	inbox   string // with the final dot

	acked func(seq uint64) error // is told each sequence before the record's owner

	mu      sync.Mutex
	pending map[uint64]chan ack // by number

	// tamper, in tests, stands between the connection and the answers; it tells whether the answer gets lost.
	tamper atomic.Pointer[func(number uint64, m *nats.Msg) (lost bool)]
}

// subscribe opens the two subscriptions of this process: answers to publishes, and notices of the projector.
func (j *Journal) subscribe() error {
	j.pub.nc, j.pub.subject, j.pub.inbox = j.nc, j.subject, nats.NewInbox()+"."
	j.pub.acked, j.pub.pending = j.acked, make(map[uint64]chan ack)
	if _, err := j.nc.Subscribe(j.pub.inbox+"*", j.pub.receive); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if _, err := j.nc.Subscribe(appliedSubject(j.producer), j.waiters.receive); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

func (p *publisher) expect(number uint64) <-chan ack {
	ch := make(chan ack, 1)
	p.mu.Lock()
	p.pending[number] = ch
	p.mu.Unlock()
	return ch
}

func (p *publisher) forget(number uint64) {
	p.mu.Lock()
	delete(p.pending, number)
	p.mu.Unlock()
}

func (p *publisher) send(number uint64, record []byte) error {
	return p.nc.PublishRequest(p.subject, p.inbox+strconv.FormatUint(number, 36), record)
}

// receive takes one answer.
func (p *publisher) receive(m *nats.Msg) {
	number, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, p.inbox), 36, 64)
	if err != nil {
		return
	}
	if f := p.tamper.Load(); f != nil && (*f)(number, m) {
		return
	}
	a := parseAck(m)
	if a.err == nil {
		a.err = p.acked(a.seq)
	}
	p.mu.Lock()
	ch := p.pending[number]
	p.mu.Unlock()
	if ch == nil {
		return
	}
	select {
	case ch <- a:
	default: // an answer waits already
	}
}

// errNotTaken is an answer that leaves the record unstored; another attempt may do better.
var errNotTaken = errors.New("journal: the server did not take the record")

// storeFailed is JetStream's error code when a limit of the stream is reached; the description says which.
const storeFailed = 10077

// parseAck reads the JSON of a publish acknowledgement.
func parseAck(m *nats.Msg) ack {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return ack{err: fmt.Errorf("%w: no stream is listening", errNotTaken)}
	}
	var a struct {
		Seq   uint64 `json:"seq"`
		Error *struct {
			Code    int    `json:"err_code"`
			Message string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return ack{err: fmt.Errorf("%w: unreadable answer: %w", errNotTaken, err)}
	}
	switch {
	case a.Error == nil && a.Seq > 0:
		return ack{seq: a.Seq}
	case a.Error == nil:
		return ack{err: fmt.Errorf("%w: answer without a sequence", errNotTaken)}
	case a.Error.Code == storeFailed && strings.Contains(a.Error.Message, "maximum bytes"):
		return ack{err: errFull}
	}
	return ack{err: fmt.Errorf("%w: %s (code %d)", errNotTaken, a.Error.Message, a.Error.Code)}
}
