package journal

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/clock"
)

// fill appends until it is refused, and returns the acknowledged ids and the refusal. It gives up the append in flight when the
// journal knows that it cannot write.
func fill(t *testing.T, j *Journal, pad int) (acked []string, refusal error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if j.sick.Load() {
				cancel()
			}
		}
	})
	for i := range 100_000 {
		id := strconv.Itoa(i)
		if _, err := j.Append(ctx, chunk(pad, id)); err != nil {
			return acked, err
		}
		acked = append(acked, id)
	}
	t.Fatal("never refused")
	return nil, nil
}

// wantHeld fails unless every acknowledged id is in the journal.
func wantHeld(t *testing.T, j *Journal, acked []string) {
	t.Helper()
	entries, err := readAll(t, j, 1)
	if err != nil {
		t.Fatal(err)
	}
	got := ids(t, entries)
	for _, id := range acked {
		if !slices.Contains(got, id) {
			t.Fatalf("acknowledged event %s is gone", id)
		}
	}
}

func TestQuota(t *testing.T) {
	clk := clock.NewManual(time.Now())
	j := opened(t, Options{MaxBytes: 1 << 20, MaxAge: time.Hour, Slack: time.Minute, Clock: clk})
	acked, err := fill(t, j, 10_000)
	wantCode(t, err, "journal_full")
	if len(acked) < 90 {
		t.Fatalf("refused after %d records of 10 kB, the quota is 1 MiB", len(acked))
	}
	if !j.Stats().Full {
		t.Fatalf("stats: %+v, want Full", j.Stats())
	}
	_, err = j.Append(t.Context(), chunk(10_000, "at once"))
	wantCode(t, err, "journal_full")
	wantHeld(t, j, acked)

	last := uint64(len(acked))
	trim := func(passed, wantFirst uint64) {
		t.Helper()
		if err := j.Trim(t.Context(), passed); err != nil {
			t.Fatal(err)
		}
		if first, l := bounds(t, j); first != wantFirst || l != last {
			t.Fatalf("after Trim(%d): %d to %d, want %d to %d", passed, first, l, wantFirst, last)
		}
	}
	trim(last, 1) // all younger than Slack
	clk.Add(2 * time.Minute)
	trim(0, 1)
	trim(5, 6) // under pressure, but nobody has passed more
	appended(t, j, chunk(10_000, "again"))
	last++
	if err := j.Trim(t.Context(), last); err != nil { // still above 90 %
		t.Fatal(err)
	}
	first, _ := bounds(t, j)
	if s := j.Stats(); first < 10 || s.Bytes < 700_000 || s.Bytes > 900_000 {
		t.Fatalf("pressure left %+v, want about 80 %% of the quota", s)
	}
	trim(last, first) // no pressure now, and nothing is older than MaxAge
	clk.Add(time.Hour)
	trim(last-1, last)
	trim(last, last+1)
	appended(t, j, chunk(0, "after"))
}

// Trim by age cuts between two records.
func TestTrimByAge(t *testing.T) {
	clk := clock.NewManual(time.Now())
	j := opened(t, Options{MaxAge: time.Hour, Slack: 1, Clock: clk})
	var at []time.Time
	for i := range 30 {
		appended(t, j, chunk(0, strconv.Itoa(i)))
		msg, err := j.stream.GetMsg(t.Context(), uint64(i+1))
		if err != nil {
			t.Fatal(err)
		}
		at = append(at, msg.Time)
	}
	for _, keep := range []uint64{2, 3, 17, 30} { // the first to be kept
		clk.Set(at[keep-1].Add(time.Hour))
		if err := j.Trim(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		if first, _ := bounds(t, j); first != keep {
			t.Fatalf("first is %d, want %d", first, keep)
		}
	}
}

func TestQuotaChangesWithTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	j := opened(t, Options{Dir: dir, MaxBytes: 1 << 20})
	acked, err := fill(t, j, 10_000)
	wantCode(t, err, "journal_full")
	closed(t, j)
	j = opened(t, Options{Dir: dir, MaxBytes: 2 << 20})
	appended(t, j, chunk(10_000, "more"))
	wantHeld(t, j, append(acked, "more"))
}

// A trim that was interrupted after the guard had moved is finished at the next Open.
func TestInterruptedTrimIsFinished(t *testing.T) {
	dir := t.TempDir()
	j := opened(t, Options{Dir: dir})
	for i := range 10 {
		appended(t, j, chunk(0, strconv.Itoa(i)))
	}
	if err := j.guard.trim(7); err != nil {
		t.Fatal(err)
	}
	closed(t, j)
	if first, last := bounds(t, opened(t, Options{Dir: dir})); first != 7 || last != 10 {
		t.Fatalf("bounds %d, %d, want 7, 10", first, last)
	}
}
