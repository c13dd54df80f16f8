package ingest

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/journal"
	"github.com/rollcall/rollcall/internal/realtest"
)

// chunks are those of the journal, and how many records they are in.
func (r *rig) chunks(t *testing.T) (chunks []event.ChunkInfo, records int) {
	t.Helper()
	first, last, err := r.journal.Bounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for seq := max(first, 1); seq <= last; seq++ {
		e, err := r.journal.Get(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		var rec event.Record
		if err := rec.Decode(e.Data); err != nil {
			t.Fatal(err)
		}
		chunks = append(chunks, rec.Chunks...)
		records++
	}
	return chunks, records
}

// sums adds up the codes of chunks by project and minute.
func sums(chunks []event.ChunkInfo) map[string]int {
	m := map[string]int{}
	for _, c := range chunks {
		for code, n := range c.Rejected.All() {
			m[fmt.Sprintf("%s %d %s", c.Project, c.Received/minuteMs-noon/minuteMs, code)] += int(n)
		}
	}
	return m
}

func TestRejectionsRideInTheChunk(t *testing.T) {
	r := newRig(t)
	res, err := r.post(t, []byte("{\"event\":\"a\"}\n{\"event\":\"a\",\"user\":\"null\"}\n{\n{\"event\":\"a\",\"user\":\"null\"}\n"), "")
	if err != nil || res.Accepted != 1 || len(res.Rejected) != 3 {
		t.Fatalf("%+v %v", res, err)
	}
	chunks, records := r.chunks(t)
	want := map[string]int{"demo 0 placeholder_user": 2, "demo 0 malformed": 1}
	if got := sums(chunks); records != 1 || len(chunks) != 1 || chunks[0].Count != 1 || !maps.Equal(got, want) {
		t.Errorf("%d records, chunks %+v: %v, want one chunk with %v", records, chunks, got, want)
	}
}

func TestAFloodOfNonsenseCostsFewWrites(t *testing.T) {
	r := newRig(t)
	now := clock.NewManual(time.UnixMilli(noon + minuteMs - 1))
	r.clock = now
	send := func(project, body string, dry bool) {
		t.Helper()
		res, err := r.Accept(t.Context(), Request{Project: project, Body: strings.NewReader(body), DryRun: dry})
		if err != nil || !res.AllRejected() {
			t.Fatalf("%+v %v", res, err)
		}
	}
	began := time.Now()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				send("demo", `[{"event":""},{"event":"a","ts":"x"},{"event":""}]`, false)
				send("shop", `{"event":"\u0000"}`, false)
				send("shop", `{"event":"\u0000"}`, true)
			}
		})
	}
	wg.Wait()
	now.Add(time.Millisecond)
	send("demo", `{"event":""}`, false)
	want := map[string]int{"demo 0 missing_event": 4000, "demo 0 bad_ts": 2000, "shop 0 bad_event": 2000, "demo 1 missing_event": 1}
	realtest.Eventually(t, time.Minute, func() error {
		chunks, _ := r.chunks(t)
		if got := sums(chunks); !maps.Equal(got, want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	})
	// At most once a second three cells; each may need a record of its own.
	if chunks, records := r.chunks(t); records > 3*(2+int(time.Since(began)/RefusedEvery)) {
		t.Errorf("%d records for 6000 requests", records)
	} else if len(r.records(t)) != 0 || chunks[0].Count != 0 {
		t.Errorf("events came from nowhere: %+v", chunks)
	}
	if n := r.Unaccounted(); n != 0 {
		t.Errorf("%d unaccounted", n)
	}
}

func TestCloseWritesWhatIsGathered(t *testing.T) {
	r := newRig(t)
	r.Ingest.refused.every = time.Hour
	for range 3 {
		if _, err := r.post(t, []byte(`{"event":""}`), ""); err != nil {
			t.Fatal(err)
		}
	}
	if chunks, _ := r.chunks(t); len(chunks) != 0 {
		t.Fatalf("written at once: %+v", chunks)
	}
	r.Close(t.Context())
	chunks, _ := r.chunks(t)
	if got, want := sums(chunks), map[string]int{"demo 0 missing_event": 3}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if _, err := r.post(t, []byte(`{"event":""}`), ""); err != nil || r.Unaccounted() != 1 {
		t.Errorf("after Close: %v, %d unaccounted, want 1", err, r.Unaccounted())
	}
	r.Close(t.Context())
}

// faulty refuses as long as there are faults.
type faulty struct {
	mu     sync.Mutex
	faults []error
	chunks []event.ChunkInfo
}

func (f *faulty) Append(_ context.Context, c journal.Chunk) (*journal.Receipt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.faults) > 0 {
		err := f.faults[0]
		f.faults = f.faults[1:]
		return nil, err
	}
	var rec event.Record
	if err := rec.Decode(event.AppendRecord(nil, event.Header{}, c.Data)); err != nil {
		return nil, err
	}
	f.chunks = append(f.chunks, rec.Chunks...)
	return &journal.Receipt{}, nil
}

// What the journal has refused is written later; what it may have written is not written again.
func TestRefusedCountsAreWrittenOnce(t *testing.T) {
	full, unknown := apperr.New(apperr.Unavailable, "journal_full", ""), apperr.New(apperr.Unavailable, "journal_unavailable", "")
	f := func(name string, faults []error, want map[string]int, lost uint64) {
		t.Helper()
		j := &faulty{faults: faults}
		in := New(Options{Journal: j, Clock: clock.NewManual(time.UnixMilli(noon))})
		in.refused.every = time.Hour
		for range 5 {
			if _, err := in.Accept(t.Context(), Request{Project: "demo", Body: strings.NewReader(`{"event":""}`)}); err != nil {
				t.Fatal(err)
			}
			in.refused.flush(t.Context())
		}
		in.Close(t.Context())
		if got := sums(j.chunks); !maps.Equal(got, want) || in.Unaccounted() != lost {
			t.Errorf("%s: %v and %d lost, want %v and %d", name, got, in.Unaccounted(), want, lost)
		}
	}
	f("full", []error{full, full, full}, map[string]int{"demo 0 missing_event": 5}, 0)
	f("not known", []error{full, unknown}, map[string]int{"demo 0 missing_event": 3}, 2)
}

func TestRefusedIsBounded(t *testing.T) {
	r := newRefused(&faulty{})
	r.every = time.Hour
	for i := range int64(maxRefused + 10) {
		r.add("demo", i*minuteMs, make([]Rejection, 2))
	}
	if len(r.cells) != maxRefused || r.lost.Load() != 20 {
		t.Errorf("%d cells, %d lost; want %d and 20", len(r.cells), r.lost.Load(), maxRefused)
	}
	r.close(t.Context())
}
