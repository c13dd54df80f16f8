package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rollcall/rollcall/internal/event"
)

func TestAppendRead(t *testing.T) {
	dir := t.TempDir()
	j := opened(t, Options{Dir: dir})
	if first, last := bounds(t, j); first != 1 || last != 0 {
		t.Fatalf("empty journal: bounds %d, %d, want 1, 0", first, last)
	}
	var want []string
	for i := range 20 {
		a, b := fmt.Sprint(i, "a"), fmt.Sprint(i, "b")
		want = append(want, a, b)
		if r := appended(t, j, chunk(0, a, b)); r.Seq != uint64(i+1) || r.Index != 0 {
			t.Fatalf("append %d: receipt %+v", i, r)
		}
	}
	check := func(j *Journal) {
		t.Helper()
		entries, err := readAll(t, j, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := ids(t, entries); !slices.Equal(got, want) {
			t.Fatalf("read %v, want %v", got, want)
		}
		for i, e := range entries {
			h, _, err := event.ReadHeader(e.Data)
			if err != nil || h.Number != uint64(i+1) {
				t.Fatalf("record %d: header %+v, %v", e.Seq, h, err)
			}
			if got, err := j.Get(t.Context(), e.Seq); err != nil || !slices.Equal(got.Data, e.Data) {
				t.Fatalf("Get(%d): %v, same bytes: %v", e.Seq, err, slices.Equal(got.Data, e.Data))
			}
		}
	}
	check(j)
	id := j.Identity()
	closed(t, j)
	j = opened(t, Options{Dir: dir})
	if j.Identity() != id {
		t.Fatalf("identity %s became %s", id, j.Identity())
	}
	check(j)
}

func TestReadStartsOnlyInside(t *testing.T) {
	j := opened(t, Options{Slack: 1, MaxAge: 1})
	for i := range 5 {
		appended(t, j, chunk(0, fmt.Sprint(i)))
	}
	if err := j.Trim(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[uint64]error{0: ErrBeforeFirst, 2: ErrBeforeFirst, 7: ErrBeyondEnd} {
		_, err := j.Read(t.Context(), from)
		wantErr(t, err, want)
	}
	for seq, want := range map[uint64]error{0: ErrBeforeFirst, 2: ErrBeforeFirst, 6: ErrBeyondEnd} {
		_, err := j.Get(t.Context(), seq)
		wantErr(t, err, want)
	}
	entries, err := readAll(t, j, 3)
	if got := ids(t, entries); err != nil || !slices.Equal(got, []string{"2", "3", "4"}) {
		t.Fatalf("read from 3: %v, %v", got, err)
	}
}

func TestReaderFollowsTheEnd(t *testing.T) {
	j := opened(t, Options{})
	r, err := j.Read(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Next(short); !errors.Is(err, context.Canceled) {
		t.Fatalf("Next with an ended context: %v", err)
	}
	for i := range 50 {
		appended(t, j, chunk(0, fmt.Sprint(i)))
		e, err := r.Next(t.Context())
		if err != nil || e.Seq != uint64(i+1) {
			t.Fatalf("Next: %d, %v", e.Seq, err)
		}
	}
}

func TestConcurrentAppendsShareARecord(t *testing.T) {
	j := opened(t, Options{})
	g := shut(j)
	var wg sync.WaitGroup
	wg.Go(func() { appended(t, j, chunk(0, "first")) })
	<-g.held
	const n = 100
	receipts := make([]*Receipt, n)
	for i := range n {
		wg.Go(func() { receipts[i] = appended(t, j, chunk(0, strconv.Itoa(i))) })
	}
	size := int64(len(chunk(0, "first").Data))
	eventually(t, "all appends wait", func() bool {
		j.queue.mu.Lock()
		defer j.queue.mu.Unlock()
		return j.queue.chunks == n+1 && int64(j.queue.bytes) > size
	})
	close(g.open)
	wg.Wait()
	if _, last := bounds(t, j); last != 2 {
		t.Fatalf("%d records, want 2", last)
	}
	e, err := j.Get(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	rec := decoded(t, e)
	for i, r := range receipts {
		if r.Seq != 2 || rec.Events[rec.Chunks[r.Index].First].ID != strconv.Itoa(i) {
			t.Fatalf("chunk %d: receipt %+v leads to %q", i, r, rec.Events[rec.Chunks[r.Index].First].ID)
		}
	}
}

func TestGroupsAreBounded(t *testing.T) {
	j := opened(t, Options{groupBytes: 10_000})
	g := shut(j)
	var wg sync.WaitGroup
	wg.Go(func() { appended(t, j, chunk(0, "first")) })
	<-g.held
	sizes := []int{4000, 4000, 4000, 30_000, 1000}
	for i, pad := range sizes {
		c := chunk(pad, strconv.Itoa(i))
		wg.Go(func() { appended(t, j, c) })
		eventually(t, "the append waits", func() bool {
			j.queue.mu.Lock()
			defer j.queue.mu.Unlock()
			return j.queue.chunks == i+2
		})
	}
	close(g.open)
	wg.Wait()
	entries, err := readAll(t, j, 2)
	if err != nil {
		t.Fatal(err)
	}
	var got [][]string
	for _, e := range entries {
		got = append(got, ids(t, []Entry{e}))
	}
	want := [][]string{{"0", "1"}, {"2"}, {"3"}, {"4"}}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Fatalf("records hold %v, want %v", got, want)
	}
}

func TestTooMuchWaitingIsRefused(t *testing.T) {
	j := opened(t, Options{})
	g := shut(j)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	big := Chunk{Data: make([]byte, 8<<20), Events: 1}
	for range maxWaitingBytes / len(big.Data) {
		wg.Go(func() {
			_, err := j.Append(ctx, big)
			wantCode(t, err, "journal_unavailable")
		})
	}
	eventually(t, "the queue is full", func() bool { return j.queue.waiting() == maxWaitingBytes })
	_, err := j.Append(t.Context(), big)
	wantCode(t, err, "journal_busy")
	cancel()
	wg.Wait()
	close(g.open)
	eventually(t, "the queue drains", func() bool { return j.queue.waiting() == 0 })
	appended(t, j, big)
}

func TestRequestThatFitsNoRecordIsRefused(t *testing.T) {
	j := opened(t, Options{})
	_, err := j.Append(t.Context(), Chunk{Data: make([]byte, maxChunk+1), Events: 1})
	wantCode(t, err, "body_too_large")
	appended(t, j, Chunk{Data: []byte(noise(maxChunk)), Events: 1})
	if err := j.fault(); err != nil {
		t.Fatal(err)
	}
	appended(t, j, Chunk{Data: []byte(noise(minPayload)), Events: 1})
}

// The caller's context ends before the answer: journal_unavailable, and the record lands all the same.
func TestAppendGivenUpMayStillLand(t *testing.T) {
	j := opened(t, Options{})
	g := shut(j)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-g.held; cancel() }()
	_, err := j.Append(ctx, chunk(0, "late"))
	wantCode(t, err, "journal_unavailable")
	close(g.open)
	entries, err := readAll(t, j, 1)
	if got := ids(t, entries); err != nil || !slices.Equal(got, []string{"late"}) {
		t.Fatalf("read %v, %v", got, err)
	}
}

// An answer is lost: the record is sent again with the same header and bytes, the caller hears of success once.
func TestLostAnswerRepeatsTheSameRecord(t *testing.T) {
	j := opened(t, Options{ackWait: 50 * time.Millisecond})
	var lost []uint64
	j.pub.tamper.Store(new(func(number uint64, _ *nats.Msg) bool {
		if number%2 == 1 && !slices.Contains(lost, number) {
			lost = append(lost, number)
			return true
		}
		return false
	}))
	for i := range 4 {
		appended(t, j, chunk(0, strconv.Itoa(i)))
	}
	entries, err := readAll(t, j, 1)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := ids(t, entries), []string{"0", "0", "1", "2", "2", "3"}; !slices.Equal(got, want) {
		t.Fatalf("read %v, want %v", got, want)
	}
	for _, i := range []int{0, 3} {
		if !slices.Equal(entries[i].Data, entries[i+1].Data) {
			t.Fatalf("records %d and %d differ", entries[i].Seq, entries[i+1].Seq)
		}
		h, _, err := event.ReadHeader(entries[i].Data)
		if err != nil || h.Producer != j.Producer() || h.Number != uint64(i+1-i/3) {
			t.Fatalf("record %d: header %+v, %v", entries[i].Seq, h, err)
		}
	}
}

func TestTwoOwners(t *testing.T) {
	dir := t.TempDir()
	j := opened(t, Options{Dir: dir})
	_, err := Open(t.Context(), Options{Dir: dir})
	wantErr(t, err, ErrInUse)
	appended(t, j, chunk(0, "still works"))
	closed(t, j)
	appended(t, opened(t, Options{Dir: dir}), chunk(0, "next"))
}

func TestCloseWhileAppending(t *testing.T) {
	dir := t.TempDir()
	j := opened(t, Options{Dir: dir})
	var mu sync.Mutex
	acked := map[string]bool{}
	var wg sync.WaitGroup
	for p := range 20 {
		wg.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d-%d", p, i)
				if _, err := j.Append(t.Context(), chunk(0, id)); err != nil {
					wantCode(t, err, "journal_unavailable")
					wantErr(t, err, ErrClosed)
					return
				}
				mu.Lock()
				acked[id] = true
				mu.Unlock()
			}
		})
	}
	eventually(t, "appends flow", func() bool { mu.Lock(); defer mu.Unlock(); return len(acked) > 200 })
	closed(t, j)
	wg.Wait()
	_, err := j.Append(t.Context(), chunk(0, "after"))
	wantErr(t, err, ErrClosed)
	entries, err := readAll(t, opened(t, Options{Dir: dir}), 1)
	if err != nil {
		t.Fatal(err)
	}
	got := ids(t, entries)
	if len(got) != len(acked) {
		t.Fatalf("%d events in the journal, %d acknowledged", len(got), len(acked))
	}
	for _, id := range got {
		if !acked[id] {
			t.Fatalf("event %s was not acknowledged", id)
		}
	}
}

// Close gives up on what is in flight when its context ends.
func TestCloseGivesUp(t *testing.T) {
	j := opened(t, Options{})
	j.pub.tamper.Store(new(func(uint64, *nats.Msg) bool { return true }))
	failed := make(chan error)
	go func() {
		_, err := j.Append(t.Context(), chunk(0, "never answered"))
		failed <- err
	}()
	eventually(t, "the record is there", func() bool { _, last := bounds(t, j); return last == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := j.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("Close: %v", err)
	}
	wantCode(t, <-failed, "journal_unavailable")
	j.closeErr = nil // as wanted
}

// The embedded server syncs each write and listens nowhere.
func TestEmbeddedServer(t *testing.T) {
	j := opened(t, Options{})
	if c := j.node.srv.JetStreamConfig(); c == nil || !c.SyncAlways {
		t.Fatalf("JetStream: %+v, want SyncAlways", c)
	}
	if a := j.node.srv.Addr(); a != nil {
		t.Fatalf("the server listens on %v", a)
	}
}

// A closed journal ends its readers.
func TestCloseEndsReaders(t *testing.T) {
	j := opened(t, Options{})
	r, err := j.Read(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() {
		_, err := r.Next(t.Context())
		failed <- err
	}()
	closed(t, j)
	wantErr(t, <-failed, ErrClosed)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}
