package projection_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/projection"
	"github.com/rollcall/rollcall/internal/realtest"
)

// commitOf matches a commit that writes to a key of the tally.
func commitOf(cmd [][]byte) bool {
	if len(cmd) < 10 || !bytes.EqualFold(cmd[0], []byte("EVALSHA")) {
		return false
	}
	for _, w := range cmd {
		if bytes.Contains(w, []byte(":tally:pv:")) {
			return true
		}
	}
	return false
}

func hit(t *testing.T, h *realtest.Hook) {
	t.Helper()
	select {
	case <-h.Hit():
	case <-time.After(patient):
		t.Fatal("no commit came")
	}
}

func TestPlainRunIsExact(t *testing.T) {
	r := newRig(t)
	p := r.start("a", r.proxy.Addr)
	r.feed(crashEvents(t))
	r.caughtUp(p)
	r.exact(r.redis)
	if s := p.Status(); s.Dups == 0 || s.Epochs != 1 {
		t.Fatalf("%+v: want duplicates, and one epoch", s)
	}
}

// DD-08: the reply of a commit is lost, although Redis has executed it.
func TestDD08_CutDuringCommit(t *testing.T) {
	r := newRig(t)
	p := r.start("a", r.proxy.Addr)
	for range 5 {
		h := r.proxy.OnNext(commitOf, realtest.DropReply)
		r.feed(crashEvents(t) / 5)
		hit(t, h)
		r.caughtUp(p)
		r.exact(r.redis)
	}
	if p.Status().Epochs < 6 {
		t.Fatalf("%d epochs: each cut must begin one", p.Status().Epochs)
	}
}

// A commit is delayed until after its retry; then it arrives.
func TestDelayedCommit(t *testing.T) {
	r := newRig(t)
	h := r.proxy.OnNext(commitOf, realtest.HoldRequest)
	p := r.start("a", r.proxy.Addr)
	r.feed(crashEvents(t) / 4)
	hit(t, h)
	r.caughtUp(p)
	r.exact(r.redis)
	reply, err := h.Release()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(reply), "-EPOCH") {
		t.Fatalf("the late commit was answered %q, want an EPOCH error", reply)
	}
	r.exact(r.redis)
	r.feed(1000)
	r.caughtUp(p)
	r.exact(r.redis)
}

func TestDelayedCommitUnguardedIsWrong(t *testing.T) {
	projection.Unguarded(t)
	r := newRig(t)
	h := r.proxy.OnNext(commitOf, realtest.HoldRequest)
	p := r.start("a", r.proxy.Addr)
	r.feed(4000)
	hit(t, h)
	r.caughtUp(p)
	if _, err := h.Release(); err != nil {
		t.Fatal(err)
	}
	if len(r.wrong(r.redis)) == 0 {
		t.Fatal("without the guard a late commit must count twice, or this test can't see the guard work")
	}
}

func TestTwoProjectors(t *testing.T) {
	r := newRig(t)
	a, b := r.start("a", r.proxy.Addr), r.start("b", r.proxy.Addr)
	r.feed(crashEvents(t))
	realtest.Eventually(t, patient, func() error {
		if a.Status().Epochs < 2 || b.Status().Epochs < 2 {
			return fmt.Errorf("%d and %d epochs: they have not met", a.Status().Epochs, b.Status().Epochs)
		}
		return nil
	})
	r.feed(crashEvents(t))
	b.stop()
	r.caughtUp(a)
	r.exact(r.redis)
}

func TestTwoProjectorsUnguardedIsWrong(t *testing.T) {
	projection.Unguarded(t)
	r := newRig(t)
	a, b := r.start("a", r.proxy.Addr), r.start("b", r.proxy.Addr)
	realtest.Eventually(t, patient, func() error {
		if a.Status().State != projection.Running || b.Status().State != projection.Running {
			return fmt.Errorf("%s and %s", a.Status().State, b.Status().State)
		}
		return nil
	})
	r.feed(10_000)
	r.caughtUp(a)
	if len(r.wrong(r.redis)) == 0 {
		t.Fatal("without the guard two projectors must count twice, or this test can't see the guard work")
	}
}

// failOver makes the replica the master while the old master goes on answering those who still know its address.
func failOver(r *rig, to *realtest.RedisServer) {
	to.Promote()
	r.proxy.SetTarget(to.Addr)
	r.proxy.CutAll()
}

func TestFailoverToALaggingReplica(t *testing.T) {
	r := newRig(t)
	p := r.start("a", r.proxy.Addr)
	master, replica := r.redis, denseRedis(t)
	for round := range 4 {
		replica.ReplicaOf(master)
		r.feed(crashEvents(t) / 8)
		replica.WaitInSync(master)
		replica.Detach()
		r.feed(crashEvents(t) / 8) // the replica does not get these
		if round%2 == 0 {
			r.caughtUp(p) // else commits are on their way when it happens
		}
		failOver(r, replica)
		r.feed(crashEvents(t) / 8)
		r.caughtUp(p)
		r.exact(replica)
		master, replica = replica, master
	}
}

func TestFailoverUnguardedIsWrong(t *testing.T) {
	projection.Unguarded(t)
	r := newRig(t)
	p := r.start("a", r.proxy.Addr)
	replica := denseRedis(t)
	replica.ReplicaOf(r.redis)
	r.feed(4000)
	r.caughtUp(p)
	replica.WaitInSync(r.redis)
	replica.Detach()
	r.feed(4000)
	r.caughtUp(p)
	failOver(r, replica)
	r.feed(4000)
	r.caughtUp(p)
	if len(r.wrong(replica)) == 0 {
		t.Fatal("without the guard a failover must lose events, or this test can't see the guard work")
	}
}

func TestRedisKilledWithItsTailCut(t *testing.T) {
	r := newRig(t)
	p := r.start("a", r.proxy.Addr)
	for range 4 {
		r.feed(crashEvents(t) / 8)
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.redis.Kill()
			r.redis.CutAOF(20_000)
			r.redis.Start()
		}()
		r.feed(crashEvents(t) / 8) // accepted while Redis is away
		<-done
		if !r.caughtUpOrTorn(p) {
			r.exact(r.redis)
			continue
		}
		// This Redis has replayed a torn commit of an earlier round (see commit.lua). That is seen, and can be mended.
		p.stop()
		if _, err := projection.Rebuild(t.Context(), r.j, r.redis.Client(), shards, "tally"); err != nil {
			t.Fatal(err)
		}
		p = r.start("a", r.proxy.Addr)
		r.caughtUp(p)
		r.exact(r.redis)
	}
}

// DD-07, SH-01: whatever moment the projector stops at, it goes on where Redis stands, with or without its dedup store.
func TestProjectorRestarts(t *testing.T) {
	r := newRig(t)
	for i := range 6 {
		p := r.start(fmt.Sprint("store-", i%2), r.proxy.Addr) // each store misses what the other one saw
		r.feed(crashEvents(t) / 6)
		if i%3 == 2 {
			r.caughtUp(p)
			r.exact(r.redis)
		}
		p.stop()
	}
	p := r.start("new", r.proxy.Addr)
	r.caughtUp(p)
	r.exact(r.redis)
}

// DD-09: a command inside a commit fails. Nothing may be counted on top, and everybody must hear of it.
func TestDD09_FailingCommandHalts(t *testing.T) {
	r := newRig(t)
	_, key := pvKey("event-3")
	if err := r.redis.Client().LPush(t.Context(), key, "no counter").Err(); err != nil {
		t.Fatal(err)
	}
	p := r.start("a", r.proxy.Addr)
	r.feed(2000)
	r.halted(p, "half written")
	p.stop()
	p = r.start("a", r.proxy.Addr)
	r.halted(p, "rebuild")
	p.stop()

	n, err := projection.Rebuild(t.Context(), r.j, r.redis.Client(), shards, "tally")
	if err != nil || n != r.last {
		t.Fatalf("rebuild: %d records, %v; want %d", n, err, r.last)
	}
	p = r.start("a", r.proxy.Addr)
	r.caughtUp(p)
	r.exact(r.redis)
}

// DD-10: two sinks, each with an offset of its own. The second refuses a batch that the first has; the retry gives it to the second alone.
func TestDD10_OneOfTwoSinksRefuses(t *testing.T) {
	r := newRig(t)
	commitOfRows := func(cmd [][]byte) bool {
		return len(cmd) > 3 && bytes.EqualFold(cmd[0], []byte("EVALSHA")) && slices.ContainsFunc(cmd, func(w []byte) bool { return string(w) == rowsKey })
	}
	p := r.start("a", r.proxy.Addr, rows{})
	for range 5 {
		h := r.proxy.OnNext(commitOfRows, realtest.HoldRequest)
		epochs := p.Status().Epochs
		r.feed(100)
		hit(t, h)
		r.caughtUp(p)
		if p.Status().Epochs == epochs {
			t.Fatal("the batch was not tried again")
		}
		if reply, err := h.Release(); err != nil || !strings.HasPrefix(string(reply), "-EPOCH") { // it comes after its retry
			t.Fatalf("the late commit was answered %q, %v; want an EPOCH error", reply, err)
		}
		r.exact(r.redis)
		want := 0
		for _, n := range r.pv {
			want += n
		}
		if got, err := r.redis.Client().Get(t.Context(), rowsKey).Int(); err != nil || got != want {
			t.Fatalf("%d rows, %v; want %d, as many as PV", got, err, want)
		}
	}
}

func TestRebuildRefusesATrimmedJournal(t *testing.T) {
	r := newRigKeeping(t, time.Millisecond)
	p := r.start("a", r.proxy.Addr)
	r.feed(2000)
	r.caughtUp(p)
	p.stop()
	if err := r.j.Trim(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if _, err := projection.Rebuild(t.Context(), r.j, r.redis.Client(), shards, "tally"); err == nil || !strings.Contains(err.Error(), "begins at record 4") {
		t.Fatalf("rebuild: %v; want a refusal", err)
	}
	r.exact(r.redis)
}

func TestJournalAndRedisThatDoNotBelongTogether(t *testing.T) {
	setMeta := func(r *rig, field, value string) {
		r.t.Helper()
		if err := r.redis.Client().HSet(t.Context(), projection.MetaKey(3, "tally"), field, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	f := func(name, field string, value func(r *rig) string, want string) {
		t.Run(name, func(t *testing.T) {
			r := newRigKeeping(t, time.Millisecond)
			p := r.start("a", r.proxy.Addr)
			r.feed(3000)
			r.caughtUp(p)
			p.stop()
			setMeta(r, field, value(r))
			r.halted(r.start("a", r.proxy.Addr), want)
		})
	}
	f("offset before the start", "offset", func(r *rig) string {
		if err := r.j.Trim(t.Context(), r.last); err != nil {
			t.Fatal(err)
		}
		return "1"
	}, "the journal begins at")
	f("offset beyond the end", "offset", func(r *rig) string { return fmt.Sprint(r.last + 1) }, "the journal has lost records")
	f("offset is no number", "offset", func(*rig) string { return "x" }, "no number")
	f("another journal", "journal", func(*rig) string { return "another" }, "written from journal another")
	f("another record at the offset", "sum", func(*rig) string { return "deadbeef" }, "the journal was replaced")
}

// A trimmed journal loses nothing that anybody still needs, and the projector goes on behind the cut.
func TestTrimmedJournal(t *testing.T) {
	r := newRigKeeping(t, time.Millisecond)
	p := r.start("a", r.proxy.Addr)
	r.feed(3000)
	r.caughtUp(p)
	p.stop()
	r.feed(1000)
	if err := r.j.Trim(t.Context(), p.Status().Offset); err != nil {
		t.Fatal(err)
	}
	if first, _, err := r.j.Bounds(t.Context()); err != nil || first != p.Status().Offset+1 {
		t.Fatalf("the journal begins at %d (%v), want %d", first, err, p.Status().Offset+1)
	}
	p = r.start("a", r.proxy.Addr)
	r.caughtUp(p)
	r.exact(r.redis)
}
