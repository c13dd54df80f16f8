package journal

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
)

// announce does the projector's part: it reads the next record and announces it, calling `odd` chunks duplicates.
func announce(t *testing.T, j *Journal, r *Reader) {
	t.Helper()
	e, err := r.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rec := decoded(t, e)
	byChunk := map[int]Notice{}
	for i, c := range rec.Chunks {
		if c.Count > 1 {
			byChunk[i] = Notice{Duplicates: []int{0, c.Count - 1}}
		}
	}
	if err := j.Announce(rec.Header, byChunk); err != nil {
		t.Fatal(err)
	}
}

func noticed(c Chunk) Chunk { c.Notify = true; return c }

func TestApplied(t *testing.T) {
	j := opened(t, Options{})
	r, err := j.Read(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()

	// Told before the caller waits, and after.
	one := appended(t, j, noticed(chunk(0, "a")))
	announce(t, j, r)
	if n, err := one.Applied(t.Context()); err != nil || len(n.Duplicates) != 0 {
		t.Fatalf("Applied: %+v, %v", n, err)
	}
	two := appended(t, j, noticed(chunk(0, "a", "b", "c")))
	var wg sync.WaitGroup
	wg.Go(func() {
		if n, err := two.Applied(t.Context()); err != nil || !slices.Equal(n.Duplicates, []int{0, 2}) {
			t.Errorf("Applied: %+v, %v", n, err)
		}
	})
	announce(t, j, r)
	wg.Wait()

	// Several chunks of one record, each its own notice.
	g := shut(j)
	wg.Go(func() { appended(t, j, chunk(0, "holds the writer")) })
	<-g.held
	for i := range 6 {
		wg.Go(func() {
			list := []string{"x", "y", "z"}[:i%3+1]
			rec := appended(t, j, noticed(chunk(0, list...)))
			var want []int
			if len(list) > 1 {
				want = []int{0, len(list) - 1}
			}
			if n, err := rec.Applied(t.Context()); err != nil || !slices.Equal(n.Duplicates, want) {
				t.Errorf("Applied of %v: %+v, %v", list, n, err)
			}
		})
	}
	eventually(t, "the chunks wait", func() bool { j.queue.mu.Lock(); defer j.queue.mu.Unlock(); return j.queue.chunks == 7 })
	close(g.open)
	announce(t, j, r)
	announce(t, j, r)
	wg.Wait()
	wantNoWaiters(t, j)
}

func wantNoWaiters(t *testing.T, j *Journal) {
	t.Helper()
	eventually(t, "no waiter is left", func() bool {
		j.waiters.mu.Lock()
		defer j.waiters.mu.Unlock()
		return j.waiters.count == 0 && len(j.waiters.records) == 0
	})
}

func TestWaitersLeave(t *testing.T) {
	j := opened(t, Options{})
	request, end := context.WithCancel(t.Context())
	var receipts []*Receipt
	for i := range 10 {
		r, err := j.Append(request, noticed(chunk(0, fmt.Sprint(i))))
		if err != nil {
			t.Fatal(err)
		}
		receipts = append(receipts, r)
	}
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := receipts[0].Applied(short); err != context.Canceled {
		t.Fatalf("Applied with an ended context: %v", err)
	}
	end()
	wantNoWaiters(t, j)
	_, err := receipts[1].Applied(t.Context())
	wantErr(t, err, errGivenUp)
	if _, err := appended(t, j, chunk(0, "no notice")).Applied(t.Context()); err == nil {
		t.Fatal("Applied of a chunk without Notify succeeded")
	}

	last, err := j.Append(t.Context(), noticed(chunk(0, "open at the end")))
	if err != nil {
		t.Fatal(err)
	}
	closed(t, j)
	_, err = last.Applied(t.Context())
	wantErr(t, err, errGivenUp)
	_, err = j.Append(t.Context(), noticed(chunk(0, "after the end")))
	wantCode(t, err, "journal_unavailable")
}

func TestWaitersAreBounded(t *testing.T) {
	var ws waiters
	ws.init()
	for range maxWaiters {
		if _, err := ws.add(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	_, err := ws.add(context.Background())
	wantCode(t, err, "journal_busy")
}

func TestNoticeEncoding(t *testing.T) {
	want := map[int]Notice{0: {Duplicates: []int{0}}, 7: {Duplicates: []int{3, 4, 5000}}, 4095: {Duplicates: []int{1}}}
	in := maps.Clone(want)
	in[9] = Notice{} // without duplicates: as if absent
	number, got, err := parseNotices(appendNotices(nil, 1<<60, in))
	if err != nil || number != 1<<60 || !maps.EqualFunc(got, want, func(a, b Notice) bool { return slices.Equal(a.Duplicates, b.Duplicates) }) {
		t.Fatalf("got %d, %v, %v, want %v", number, got, err, want)
	}
}

func FuzzNotices(f *testing.F) {
	f.Add(appendNotices(nil, 5, map[int]Notice{1: {Duplicates: []int{0, 9}}}))
	f.Add([]byte{1, 5, 200, 1, 255, 255, 255, 255, 15})
	f.Fuzz(func(t *testing.T, b []byte) {
		number, byChunk, err := parseNotices(b)
		if err != nil {
			return
		}
		n, again, err := parseNotices(appendNotices(nil, number, byChunk))
		if err != nil || n != number {
			t.Fatalf("%x: %d, %v became %d, %v, %v", b, number, byChunk, n, again, err)
		}
		for i, notice := range byChunk {
			if len(notice.Duplicates) > 0 && !slices.Equal(again[i].Duplicates, notice.Duplicates) {
				t.Fatalf("%x: chunk %d: %v became %v", b, i, notice, again[i])
			}
		}
	})
}
