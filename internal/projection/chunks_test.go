package projection_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/journal"
	"github.com/rollcall/rollcall/internal/projection"
	"github.com/rollcall/rollcall/internal/projection/dedup"
)

// ledger adds up what the chunks of records say. It may join late.
type ledger struct{}

const ledgerKey = "rc:{05}:ledger:n"

func (ledger) Name() string { return "ledger" }
func (ledger) Reset()       {}
func (ledger) JoinsLate()   {}

func (ledger) Project(_ context.Context, b *projection.Batch, tx *projection.Tx) error {
	sums := map[string]int64{}
	for _, r := range b.Records {
		if r.Seq <= tx.Applied(5) {
			continue
		}
		events := 0
		for _, c := range r.Chunks {
			events += c.Events - c.Duplicates
			sums[c.Project+" events"] += int64(c.Events)
			sums[c.Project+" duplicates"] += int64(c.Duplicates)
			if c.Bot {
				sums[c.Project+" bots"] += int64(c.Events - c.Duplicates)
			}
			sums[c.Project+" rejected"] += c.Rejected.Total()
		}
		if events != len(r.Events) {
			return fmt.Errorf("record %d: its chunks have %d events, it has %d", r.Seq, events, len(r.Events))
		}
	}
	for field, n := range sums {
		tx.Do(5, "HINCRBY", ledgerKey, field, n)
	}
	return nil
}

func (r *rig) ledger(what string) (n int) {
	r.t.Helper()
	v, err := r.redis.Client().HGetAll(r.t.Context(), ledgerKey).Result()
	if err != nil {
		r.t.Fatal(err)
	}
	if s := v["demo "+what]; s != "" {
		if _, err := fmt.Sscan(s, &n); err != nil {
			r.t.Fatal(err)
		}
	}
	return n
}

// sound compares the ledger with what was fed: n events, of which some were duplicates.
func (r *rig) sound(n int) {
	r.t.Helper()
	fresh := 0
	for _, pv := range r.pv {
		fresh += pv
	}
	if got := r.ledger("events"); got != n {
		r.t.Errorf("the ledger has %d events, want %d", got, n)
	}
	if got := r.ledger("duplicates"); got != n-fresh || got == 0 {
		r.t.Errorf("the ledger has %d duplicates, want %d", got, n-fresh)
	}
}

func TestChunksTellWhatWasSent(t *testing.T) {
	r := newRig(t)
	p := r.start("a", r.proxy.Addr, ledger{})
	r.feed(3000)
	r.caughtUp(p)
	r.sound(3000)
	p.stop()
	r.feed(3000)
	p = r.start("b", r.proxy.Addr, ledger{}) // without the dedup store of before
	r.caughtUp(p)
	r.sound(6000)
	r.exact(r.redis)
}

// A request of which nothing was taken is a chunk without events: it passes through everything, and whoever waits for it is told.
func TestChunkWithoutEvents(t *testing.T) {
	r := newRig(t)
	p := r.start("a", r.proxy.Addr, ledger{})
	r.feed(1000)
	send := func(bot bool, events int, rejected int) {
		t.Helper()
		var b event.Builder
		b.Reset("demo", time.Now().UnixMilli(), false, true)
		if bot {
			b.MarkBot()
		}
		for i := range events {
			b.Add(&event.Event{Name: "bot", ID: fmt.Sprint("bot-", i)})
		}
		b.Reject("too_late", rejected)
		rc, err := r.j.Append(t.Context(), journal.Chunk{Data: b.Bytes(), Events: b.Len(), Notify: true})
		if err != nil {
			t.Fatal(err)
		}
		r.last = max(r.last, rc.Seq)
		ctx, cancel := context.WithTimeout(t.Context(), patient)
		defer cancel()
		if n, err := rc.Applied(ctx); err != nil || len(n.Duplicates) > 0 && events == 0 {
			t.Fatalf("applied: %v %v", n, err)
		}
	}
	send(false, 0, 7)
	send(true, 10, 0)
	send(true, 12, 5) // ten of them once more
	send(false, 0, 1)
	r.caughtUp(p)
	p.stop()
	p = r.start("b", r.proxy.Addr, ledger{}) // reads all of it again
	send(false, 0, 1)
	r.caughtUp(p)
	if got := r.ledger("rejected"); got != 14 {
		t.Errorf("%d rejected, want 14", got)
	}
	if got := r.ledger("bots"); got != 12 {
		t.Errorf("%d bots, want 12", got)
	}
	if got := r.ledger("events"); got != 1022 {
		t.Errorf("%d events, want 1022", got)
	}
}

// A projection that is new to an install: one that may join late begins where the journal begins, and the others go on where they are.
func TestLateJoiner(t *testing.T) {
	t.Run("whole journal", func(t *testing.T) {
		r := newRig(t)
		p := r.start("a", r.proxy.Addr)
		r.feed(3000)
		r.caughtUp(p)
		p.stop()
		r.feed(1000)
		p = r.start("a", r.proxy.Addr, ledger{})
		r.caughtUp(p)
		r.exact(r.redis)
		r.sound(4000)
	})
	t.Run("trimmed journal", func(t *testing.T) {
		r := newRigKeeping(t, time.Millisecond)
		p := r.start("a", r.proxy.Addr)
		r.feed(3000)
		r.caughtUp(p)
		p.stop()
		if err := r.j.Trim(t.Context(), r.last); err != nil {
			t.Fatal(err)
		}
		for range 2 { // also when nothing was committed between two starts
			p = r.start("a", r.proxy.Addr, ledger{})
			r.caughtUp(p)
			p.stop()
		}
		r.feed(1000)
		p = r.start("a", r.proxy.Addr, ledger{})
		r.caughtUp(p)
		r.exact(r.redis)
		if got := r.ledger("events"); got != 1000 {
			t.Errorf("the ledger has %d events, want the 1000 since it began", got)
		}
		p.stop()

		if _, err := projection.Rebuild(t.Context(), r.j, r.redis.Client(), shards, "tally", "ledger"); err == nil {
			t.Error("a trimmed journal was counted again")
		}
		first, last, err := r.j.Bounds(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n, err := projection.RebuildRest(t.Context(), r.j, r.redis.Client(), shards, "ledger")
		if err != nil || n != last+1-first {
			t.Fatalf("rebuild: %d records, %v; want %d", n, err, last+1-first)
		}
		if got := r.ledger("events"); got != 0 {
			t.Errorf("%d events after the rebuild", got)
		}
		p = r.start("a", r.proxy.Addr, ledger{})
		r.caughtUp(p)
		r.exact(r.redis)
		if got := r.ledger("events"); got != 1000 {
			t.Errorf("the ledger has %d events after its rebuild, want 1000", got)
		}
	})
	t.Run("others may not", func(t *testing.T) {
		r := newRigKeeping(t, time.Millisecond)
		p := r.start("a", r.proxy.Addr)
		r.feed(3000)
		r.caughtUp(p)
		p.stop()
		if err := r.j.Trim(t.Context(), r.last); err != nil {
			t.Fatal(err)
		}
		r.halted(r.start("a", r.proxy.Addr, rows{}), "the journal begins at")
	})
}

// A record that the journal holds twice was received once; duplicates belong to the chunk in which they stand.
func TestChunksOfARecord(t *testing.T) {
	var rec event.Record
	var chunks [][]byte
	for i, n := range []int{3, 0, 2, 4} {
		var b event.Builder
		b.Reset(fmt.Sprint("p", i), int64(100+i), false, false)
		for range n {
			b.Add(&event.Event{Name: "e"})
		}
		b.Reject("bad_user", i)
		chunks = append(chunks, b.Bytes())
	}
	if err := rec.Decode(event.AppendRecord(nil, event.Header{}, chunks...)); err != nil {
		t.Fatal(err)
	}
	f := func(want string, d dedup.Duplicates) {
		t.Helper()
		got := ""
		for _, c := range projection.AppendChunks(nil, &rec, &d) {
			got += fmt.Sprintf("%s@%d %d-%d+%d ", c.Project, c.Received, c.Events, c.Duplicates, c.Rejected.Total())
		}
		if got != want {
			t.Errorf("%+v: got %s, want %s", d, got, want)
		}
	}
	f("p0@100 3-0+0 p1@101 0-0+1 p2@102 2-0+2 p3@103 4-0+3 ", dedup.Duplicates{})
	f("p0@100 3-1+0 p1@101 0-0+1 p2@102 2-2+2 p3@103 4-1+3 ", dedup.Duplicates{Events: []int{2, 3, 4, 8}})
	f("p0@100 3-3+0 p1@101 0-0+1 p2@102 2-2+2 p3@103 4-4+3 ", dedup.Duplicates{Events: []int{0, 1, 2, 3, 4, 5, 6, 7, 8}})
	f("", dedup.Duplicates{Record: true})
}
