package journal

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/event"
)

const patience = 30 * time.Second

// opened opens a journal and closes it with the test. Its log goes nowhere unless the options have one.
func opened(t testing.TB, o Options) *Journal {
	t.Helper()
	if o.Dir == "" && o.URL == "" {
		o.Dir = t.TempDir()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	j, err := Open(t.Context(), o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { closed(t, j) })
	return j
}

func closed(t testing.TB, j *Journal) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := j.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// chunk is a request with these event ids; pad makes each event that much larger, and incompressible.
func chunk(pad int, ids ...string) Chunk {
	var b event.Builder
	b.Reset("demo", time.Now().UnixMilli(), false, false)
	for _, id := range ids {
		e := event.Event{Project: "demo", Name: "page_view", User: "u", ID: id}
		for i := 0; pad > 0; i++ {
			v := noise(min(pad, event.MaxPropValue))
			e.Props.Append(strconv.Itoa(i), event.String, v)
			pad -= len(v)
		}
		b.Add(&e)
	}
	return Chunk{Data: slices.Clone(b.Bytes()), Events: len(ids)}
}

// noise is a string of n bytes that does not compress.
func noise(n int) string {
	b := make([]byte, n)
	x := uint64(time.Now().UnixNano()) | 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x >> 32)
	}
	return string(b)
}

func appended(t testing.TB, j *Journal, c Chunk) *Receipt {
	t.Helper()
	r, err := j.Append(t.Context(), c)
	if err != nil {
		t.Fatalf("Append: %v", err)
	}
	return r
}

func wantCode(t testing.TB, err error, code string) {
	t.Helper()
	var e *apperr.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("got error %v, want code %s", err, code)
	}
	if e.Kind == apperr.Unavailable && e.RetryAfter <= 0 {
		t.Fatalf("%v has no RetryAfter", err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}

func bounds(t testing.TB, j *Journal) (first, last uint64) {
	t.Helper()
	first, last, err := j.Bounds(t.Context())
	if err != nil {
		t.Fatalf("Bounds: %v", err)
	}
	return first, last
}

// readAll returns the records from a sequence to the end, or the error that stopped the reader.
func readAll(t testing.TB, j *Journal, from uint64) (entries []Entry, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, last, err := j.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	r, err := j.Read(ctx, from)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	r.tick = 100 * time.Millisecond
	for seq := from; seq <= last; seq++ {
		e, err := r.Next(ctx)
		if err != nil {
			return entries, err
		}
		if e.Seq != seq {
			t.Fatalf("Next gave record %d, want %d", e.Seq, seq)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func decoded(t testing.TB, e Entry) *event.Record {
	t.Helper()
	var r event.Record
	if err := r.Decode(e.Data); err != nil {
		t.Fatalf("record %d: %v", e.Seq, err)
	}
	return &r
}

// ids lists the event ids of entries in order.
func ids(t testing.TB, entries []Entry) (all []string) {
	t.Helper()
	for _, e := range entries {
		for _, ev := range decoded(t, e).Events {
			all = append(all, ev.ID)
		}
	}
	return all
}

// eventually waits until ok holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v in vain: %s", patience, what)
		}
	}
}

// gate holds the answers to publishes back until it is opened.
type gate struct {
	held chan uint64
	open chan struct{}
}

func shut(j *Journal) *gate {
	g := &gate{held: make(chan uint64, 1000), open: make(chan struct{})}
	j.pub.tamper.Store(new(func(number uint64, _ *nats.Msg) bool {
		g.held <- number
		<-g.open
		return false
	}))
	return g
}
