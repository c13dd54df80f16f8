// Package journal is the durable, ordered log of records: what it has acknowledged is on disk, in one order, and is read back
// complete or with a loud error.
//
// It is NATS JetStream, embedded (no port, every write synced) or an external cluster, by the same code. JetStream alone skips
// damaged records in silence and may cut a damaged tail when it starts; the guards of this package (see guard.go and Reader)
// turn both into errors. docs/adr/0002-journal-on-jetstream.md tells what was tried.
package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/event"
)

// Faults of the journal itself. They are for operators and for the projector, which stops on them; match with errors.Is.
var (
	ErrClosed      = errors.New("journal: closed")
	ErrBeforeFirst = errors.New("journal: the sequence is before the first kept record")
	ErrBeyondEnd   = errors.New("journal: the sequence is beyond the end")
	ErrGap         = errors.New("journal: a record is missing")
	ErrLostRecords = errors.New("journal: acknowledged records are lost")
	ErrInUse       = errors.New("journal: the folder is in use by another process")
	ErrBadStream   = errors.New("journal: the stream's settings are unsafe")
	ErrMaxPayload  = errors.New("journal: the server's max_payload is too small")
	ErrIdentity    = errors.New("journal: the stream is not the one that the folder's guard file belongs to")
)

// Options of a journal. The zero value of each field but Dir has a default.
type Options struct {
	Dir    string // folder of the embedded server, made if missing; not used with URL
	URL    string // nats://… of an external server or cluster (comma-separated); "" = embedded
	Stream string // default ROLLCALL

	MaxBytes int64         // disk quota of the stream; 0 = none
	MaxAge   time.Duration // Trim removes what is older; default 7 days
	Slack    time.Duration // Trim never removes what is younger, whatever the pressure; default 15 minutes
	MinFree  int64         // appends are refused below this many free bytes on Dir's disk; default 256 MiB, negative = off
	Replicas int           // of a stream made on an external cluster; default 3 on a cluster, 1 on a single server

	Log   *slog.Logger
	Clock clock.Clock

	groupBytes int           // raw chunk bytes in one record
	ackWait    time.Duration // until a publish is tried again
}

func (o *Options) defaults() error {
	set := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	set(&o.MaxAge, 7*24*time.Hour)
	set(&o.Slack, 15*time.Minute)
	set(&o.ackWait, 10*time.Second)
	if o.Stream == "" {
		o.Stream = "ROLLCALL"
	}
	if !streamName.MatchString(o.Stream) {
		return fmt.Errorf("journal: stream name %q: want 1–32 of A-Z a-z 0-9 _ -", o.Stream)
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = -1
	}
	if o.MinFree == 0 {
		o.MinFree = 256 << 20
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.groupBytes <= 0 {
		o.groupBytes = 1 << 20
	}
	if o.URL == "" && o.Dir == "" {
		return errors.New("journal: neither a folder nor a URL")
	}
	return nil
}

var streamName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// Journal is an open journal. Safe for concurrent use.
type Journal struct {
	opt      Options
	log      *slog.Logger
	subject  string
	identity string
	producer uint64
	number   atomic.Uint64

	node   *node  // the embedded server; nil with an external one
	guard  *guard // nil with an external server
	nc     *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream

	queue   queue
	written chan struct{} // closed when the writer has ended
	pub     publisher
	waiters waiters
	life    context.Context // ends when the journal gives up on what is in flight
	end     context.CancelFunc

	sick    atomic.Bool  // the embedded server cannot write, see heal
	full    atomic.Int64 // appends are refused at once until this monotonic instant, see refuse
	broken  atomic.Pointer[error]
	missing uint64 // records known at Open to be missing inside the kept range

	closing   sync.Once
	closeErr  error
	lastState atomic.Pointer[jetstream.StreamState]
}

// epoch is where the package's monotonic instants count from.
var epoch = time.Now()

// Open starts the embedded server in Dir, or connects to URL, and opens or makes the stream.
//
// Errors: ErrInUse, ErrLostRecords, ErrIdentity, ErrBadStream, ErrMaxPayload, and whatever the server or the disk says.
func Open(ctx context.Context, o Options) (_ *Journal, err error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	j := &Journal{opt: o, log: o.Log.With("part", "journal"), producer: rand.Uint64(), subject: "rollcall.journal." + o.Stream}
	j.life, j.end = context.WithCancel(context.Background())
	j.queue.init(o.groupBytes)
	j.waiters.init()
	defer func() {
		if err != nil {
			j.end()
			err = errors.Join(err, j.release(ctx))
		}
	}()

	if o.URL == "" {
		if err := os.MkdirAll(o.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("journal: %w", err)
		}
		if j.node, err = startNode(o.Dir, j.log); err != nil {
			return nil, err
		}
		if j.guard, err = openGuard(o.Dir); err != nil {
			return nil, err
		}
	}
	if err := j.connect(ctx); err != nil {
		return nil, err
	}
	if err := j.openStream(ctx); err != nil {
		return nil, err
	}
	if err := j.subscribe(); err != nil {
		return nil, err
	}
	j.written = make(chan struct{})
	go j.write()
	return j, nil
}

// connect opens the client connection. It reconnects for ever; while it is down nothing is buffered: a publish fails at once
// and is tried again by its owner.
func (j *Journal) connect(ctx context.Context) (err error) {
	opts := []nats.Option{
		nats.Name("rollcall journal"),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(50*time.Millisecond, 50*time.Millisecond),
		nats.ReconnectBufSize(-1),
		nats.PingInterval(10 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				j.log.Warn("the connection to the journal's server is down", "err", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { j.log.Info("connected to the journal's server again") }),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			j.log.Warn("the journal's connection reports an error", "err", err)
		}),
	}
	if j.node != nil {
		opts = append(opts, nats.InProcessServer(j.node), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(0, 0))
	}
	if t, ok := ctx.Deadline(); ok {
		opts = append(opts, nats.Timeout(max(time.Until(t), time.Millisecond)))
	}
	if j.nc, err = nats.Connect(j.opt.URL, opts...); err != nil {
		return fmt.Errorf("journal: connecting: %w", err)
	}
	if have := j.nc.MaxPayload(); have < minPayload {
		return fmt.Errorf("%w: it is %d bytes, the journal needs %d; set max_payload: 16MB in the server's configuration", ErrMaxPayload, have, minPayload)
	}
	j.js, err = jetstream.New(j.nc)
	return err
}

// Identity is the random id that the stream got when it was made. It changes only when the operator accepts a loss.
func (j *Journal) Identity() string { return j.identity }

// Producer is this process's random producer id, the first half of every header it writes.
func (j *Journal) Producer() uint64 { return j.producer }

// Entry is one record as it lies in the journal.
type Entry struct {
	Seq  uint64
	Data []byte
}

// Bounds returns the sequences of the first kept and of the last record. An empty journal has first = last+1.
func (j *Journal) Bounds(ctx context.Context) (first, last uint64, err error) {
	st, err := j.state(ctx)
	if err != nil {
		return 0, 0, err
	}
	return st.FirstSeq, st.LastSeq, nil
}

// state asks the server. It checks what must never happen: an end below what was acknowledged.
func (j *Journal) state(ctx context.Context) (jetstream.StreamState, error) {
	if err := j.fault(); err != nil {
		return jetstream.StreamState{}, err
	}
	var acked uint64
	if j.guard != nil {
		acked, _ = j.guard.get()
	}
	info, err := j.stream.Info(ctx)
	if err != nil {
		return jetstream.StreamState{}, fmt.Errorf("journal: asking for the stream's state: %w", err)
	}
	st := info.State
	if st.Msgs == 0 {
		st.FirstSeq = st.LastSeq + 1
	}
	if st.LastSeq < acked {
		return st, j.breakdown(j.lost(st.LastSeq, acked))
	}
	j.lastState.Store(&st)
	return st, nil
}

// Get returns one record. Errors: ErrBeforeFirst, ErrBeyondEnd, ErrGap, event.ErrDamaged, event.ErrVersion.
func (j *Journal) Get(ctx context.Context, seq uint64) (Entry, error) {
	msg, err := j.stream.GetMsg(ctx, seq)
	if err == nil {
		if msg.Sequence != seq {
			return Entry{}, fmt.Errorf("%w: asked for record %d, the server gave %d", ErrGap, seq, msg.Sequence)
		}
		return j.entry(seq, msg.Subject, msg.Data)
	}
	if ctx.Err() != nil || seq > 0 && !refused(err) {
		return Entry{}, fmt.Errorf("journal: reading record %d: %w", seq, err)
	}
	first, last, berr := j.Bounds(ctx)
	switch {
	case berr != nil:
		return Entry{}, berr
	case seq < first:
		return Entry{}, fmt.Errorf("%w: %d < %d", ErrBeforeFirst, seq, first)
	case seq > last:
		return Entry{}, fmt.Errorf("%w: %d > %d", ErrBeyondEnd, seq, last)
	}
	return Entry{}, fmt.Errorf("%w: record %d of %d to %d: %w", ErrGap, seq, first, last, err)
}

// entry checks what the server gave: JetStream's own checksum does not cover where the subject ends.
func (j *Journal) entry(seq uint64, subject string, data []byte) (Entry, error) {
	if _, _, err := event.ReadHeader(data); err != nil {
		return Entry{}, fmt.Errorf("journal: record %d: %w", seq, err)
	}
	if subject != j.subject {
		return Entry{}, fmt.Errorf("journal: record %d: %w: its subject is %q", seq, event.ErrDamaged, subject)
	}
	return Entry{Seq: seq, Data: data}, nil
}

// refused tells an answer of the server about the record itself from a failure to get an answer.
func refused(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) || errors.Is(err, jetstream.ErrMsgNotFound)
}

// breakdown puts the journal out of order for good: it refuses everything until it is opened again.
func (j *Journal) breakdown(err error) error {
	if j.broken.CompareAndSwap(nil, &err) {
		j.log.Error("the journal is out of order", "err", err)
	}
	return *j.broken.Load()
}

func (j *Journal) fault() error {
	if p := j.broken.Load(); p != nil {
		return *p
	}
	return nil
}

// Stats is what the journal tells the metrics.
type Stats struct {
	Records, Bytes uint64
	First, Last    uint64
	Missing        uint64 // records inside the range that the server no longer has, as found at Open
	FreeDisk       int64  // bytes, -1 = unknown (external server)
	Full           bool   // appends are being refused for want of room
	Waiting        int64  // bytes of chunks not yet acknowledged
}

// Stats asks the server, for at most a second; if it does not answer, the last known figures are returned.
func (j *Journal) Stats() Stats {
	ctx, cancel := context.WithTimeout(j.life, time.Second)
	defer cancel()
	st, err := j.state(ctx)
	if err != nil {
		if p := j.lastState.Load(); p != nil {
			st = *p
		}
	}
	s := Stats{Records: st.Msgs, Bytes: st.Bytes, First: st.FirstSeq, Last: st.LastSeq, Missing: j.missing, FreeDisk: -1, Full: j.isFull() || j.sick.Load(), Waiting: j.queue.waiting()}
	if j.node != nil {
		if free, err := freeDisk(j.opt.Dir); err == nil {
			s.FreeDisk = free
			s.Full = s.Full || free < j.opt.MinFree
		}
	}
	return s
}

// Close refuses new appends, waits for those in flight until ctx ends (what is left then fails with journal_unavailable), and
// stops the embedded server. Only the first call does it; the others return the same error.
func (j *Journal) Close(ctx context.Context) error {
	j.closing.Do(func() {
		j.queue.close()
		select {
		case <-j.written:
		case <-ctx.Done():
			j.closeErr = fmt.Errorf("journal: closed with appends in flight: %w", ctx.Err())
		}
		j.end()
		<-j.written
		j.waiters.close()
		j.closeErr = errors.Join(j.closeErr, j.release(ctx))
	})
	return j.closeErr
}

// release gives back connection, guard, server and lock, in this order.
func (j *Journal) release(ctx context.Context) (err error) {
	if j.nc != nil {
		j.nc.Close()
	}
	if j.guard != nil {
		err = j.guard.close()
	}
	if j.node != nil {
		err = errors.Join(err, j.node.stop(ctx))
	}
	return err
}
