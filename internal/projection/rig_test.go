package projection_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/ident"
	"github.com/rollcall/rollcall/internal/journal"
	"github.com/rollcall/rollcall/internal/projection"
	"github.com/rollcall/rollcall/internal/realtest"
)

const (
	shards  = 16
	patient = 60 * time.Second
)

// crashEvents is how many events a fault test sends; `make crash` raises it.
func crashEvents(t testing.TB) int {
	s := os.Getenv("ROLLCALL_CRASH_EVENTS")
	if s == "" {
		return 20_000
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// tally is a small projection with everything that can go wrong in a large one: an increment, a sketch, and a cache of what
// Redis holds that is only right within one epoch.
type tally struct{ sent map[string]bool }

func (*tally) Name() string { return "tally" }
func (p *tally) Reset()     { p.sent = map[string]bool{} }

func pvKey(name string) (int, string) {
	s := ident.Shard(shards, "demo", name)
	return s, "rc:{" + ident.Tag(s) + "}:tally:pv:" + name
}

func uvKey(name string) string {
	_, k := pvKey(name)
	return strings.Replace(k, ":pv:", ":uv:", 1)
}

func (p *tally) Project(_ context.Context, b *projection.Batch, tx *projection.Tx) error {
	counts := map[string]int{}
	for _, r := range b.Records {
		for _, e := range r.Events {
			shard, _ := pvKey(e.Name)
			if r.Seq <= tx.Applied(shard) {
				continue
			}
			counts[e.Name]++
			if k := e.Name + " " + e.User; !p.sent[k] {
				p.sent[strings.Clone(k)] = true
				tx.Do(shard, "PFADD", uvKey(e.Name), e.User)
			}
		}
	}
	for name, n := range counts {
		shard, key := pvKey(name)
		tx.Do(shard, "INCRBY", key, n)
	}
	return nil
}

// rows is a second sink: it counts the rows that it holds.
type rows struct{}

const rowsKey = "rc:{00}:rows:n"

func (rows) Name() string { return "rows" }
func (rows) Reset()       {}

func (rows) Project(_ context.Context, b *projection.Batch, tx *projection.Tx) error {
	n := 0
	for _, r := range b.Records {
		if r.Seq > tx.Applied(0) {
			n += len(r.Events)
		}
	}
	tx.Do(0, "INCRBY", rowsKey, n)
	return nil
}

// rig is a journal, a Redis behind a proxy, and the truth about what was accepted.
type rig struct {
	t     *testing.T
	dir   string
	redis *realtest.RedisServer
	proxy *realtest.Proxy
	j     *journal.Journal

	mu    sync.Mutex
	pv    map[string]int
	users map[string]map[string]bool
	last  uint64 // highest sequence appended
	next  int    // number of the next fresh id
}

func newRig(t *testing.T) *rig { return newRigKeeping(t, 7*24*time.Hour) }

// newRigKeeping has a journal from which Trim removes what is older than keep.
func newRigKeeping(t *testing.T, keep time.Duration) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), pv: map[string]int{}, users: map[string]map[string]bool{}}
	r.redis = denseRedis(t)
	r.proxy = realtest.NewProxy(t, r.redis.Addr)
	r.j = r.openJournal(keep)
	return r
}

// denseRedis stores every sketch dense, so that equal registers are equal bytes.
func denseRedis(t *testing.T) *realtest.RedisServer {
	return realtest.Redis(t, "hll-sparse-max-bytes 0")
}

func (r *rig) openJournal(keep time.Duration) *journal.Journal {
	r.t.Helper()
	j, err := journal.Open(r.t.Context(), journal.Options{Dir: filepath.Join(r.dir, "journal"), Log: quiet(), Clock: clock.System{},
		MaxAge: keep, Slack: time.Millisecond})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), patient)
		defer stop()
		if err := j.Close(ctx); err != nil {
			r.t.Error("close journal:", err)
		}
	})
	return j
}

func quiet() *slog.Logger {
	if os.Getenv("ROLLCALL_TEST_LOG") != "" {
		return slog.Default()
	}
	return slog.New(slog.DiscardHandler)
}

// feed accepts n events of 7 names from 3,000 users over several connections; every fifth is an earlier one sent again,
// half of those without an id.
func (r *rig) feed(n int) {
	r.t.Helper()
	var wg sync.WaitGroup
	const producers = 4
	errs := make(chan error, producers)
	for p := range producers {
		rng := rand.New(rand.NewPCG(uint64(p), uint64(n)))
		wg.Go(func() {
			for left := n / producers; left > 0; {
				size := min(1+rng.IntN(200), left)
				if err := r.append(rng, size); err != nil {
					errs <- err
					return
				}
				left -= size
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		r.t.Fatal("append:", err)
	}
}

func (r *rig) append(rng *rand.Rand, size int) error {
	now := time.Now().UnixMilli()
	var b event.Builder
	b.Reset("demo", now, false, false)
	r.mu.Lock()
	for range size {
		id, fresh := r.next, true
		if rng.IntN(5) == 0 && id > 0 {
			id, fresh = rng.IntN(id), false
		} else {
			r.next++
		}
		e := event.Event{Name: fmt.Sprint("event-", id%7), User: fmt.Sprint("user-", id*2654435761%3001), ID: fmt.Sprint("id-", id), Time: now}
		if !fresh && rng.IntN(2) == 0 {
			e.ID, fresh = "", true // sent again without an id: another event
		}
		if fresh {
			r.count(&e)
		}
		b.Add(&e)
	}
	r.mu.Unlock()
	rc, err := r.j.Append(r.t.Context(), journal.Chunk{Data: b.Bytes(), Events: b.Len()})
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.last = max(r.last, rc.Seq)
	r.mu.Unlock()
	return nil
}

func (r *rig) count(e *event.Event) {
	r.pv[e.Name]++
	if r.users[e.Name] == nil {
		r.users[e.Name] = map[string]bool{}
	}
	r.users[e.Name][e.User] = true
}

// projector is one running projector of the rig.
type projector struct {
	*projection.Projector
	stop func()
}

// start runs a projector that reaches Redis at addr and keeps its dedup store under name. Several can run at once. more are projections
// beside the tally.
func (r *rig) start(name, addr string, more ...projection.Projection) *projector {
	r.t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, DialTimeout: time.Second, ReadTimeout: 2 * time.Second,
		ContextTimeoutEnabled: true, DisableIdentity: true})
	p, err := projection.New(projection.Options{Journal: r.j, Redis: rdb, Shards: shards, Projections: append([]projection.Projection{&tally{}}, more...),
		DedupDir: filepath.Join(r.dir, "dedup-"+name), DedupWindow: 7 * 24 * time.Hour, Exclusive: true, BatchEvents: 2000,
		Log: quiet().With("projector", name), Clock: clock.System{}})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Error("projector:", err)
		}
		_ = rdb.Close()
	})
	r.t.Cleanup(stop)
	return &projector{p, stop}
}

// caughtUp waits until p has committed everything that was accepted.
func (r *rig) caughtUp(p *projector) {
	r.t.Helper()
	realtest.Eventually(r.t, patient, func() error {
		if s := p.Status(); s.State != projection.Running || s.Offset < r.last {
			return fmt.Errorf("%s at %d of %d %s", s.State, s.Offset, r.last, s.Reason)
		}
		return nil
	})
}

// caughtUpOrTorn waits until p has committed everything, or has halted because Redis replayed a torn commit.
func (r *rig) caughtUpOrTorn(p *projector) (torn bool) {
	r.t.Helper()
	realtest.Eventually(r.t, patient, func() error {
		s := p.Status()
		torn = s.State == projection.Halted && strings.Contains(s.Reason, "a torn commit was replayed")
		if !torn && (s.State != projection.Running || s.Offset < r.last) {
			return fmt.Errorf("%s at %d of %d %s", s.State, s.Offset, r.last, s.Reason)
		}
		return nil
	})
	return torn
}

// halted waits until p has halted for a reason that says what.
func (r *rig) halted(p *projector, what string) {
	r.t.Helper()
	realtest.Eventually(r.t, patient, func() error {
		if s := p.Status(); s.State != projection.Halted || !strings.Contains(s.Reason, what) {
			return fmt.Errorf("%s: %q, want halted: %q", s.State, s.Reason, what)
		}
		return nil
	})
}

// wrong compares a Redis with the truth: every count, and every sketch register by register with one that plain PFADD made.
func (r *rig) wrong(at *realtest.RedisServer) (faults []string) {
	r.t.Helper()
	ctx := r.t.Context()
	rdb := at.Client()
	total := 0
	for name, want := range r.pv {
		_, key := pvKey(name)
		got, err := rdb.Get(ctx, key).Int()
		if err != nil && err != redis.Nil {
			r.t.Fatal(err)
		}
		total += want
		if got != want {
			faults = append(faults, fmt.Sprintf("PV of %s: got %d, want %d", name, got, want))
		}
		const clean = "rc:{00}:clean"
		if err := rdb.Del(ctx, clean).Err(); err != nil {
			r.t.Fatal(err)
		}
		users := make([]any, 0, len(r.users[name]))
		for u := range r.users[name] {
			users = append(users, u)
		}
		if err := rdb.PFAdd(ctx, clean, users...).Err(); err != nil {
			r.t.Fatal(err)
		}
		if got, want := registers(r.t, rdb, uvKey(name)), registers(r.t, rdb, clean); !bytes.Equal(got, want) {
			faults = append(faults, "sketch of "+name+" differs from a clean one")
		}
	}
	if total == 0 {
		r.t.Fatal("nothing was accepted: the test shows nothing")
	}
	return faults
}

// registers returns a dense sketch without the cached count in its header.
func registers(t *testing.T, rdb *redis.Client, key string) []byte {
	t.Helper()
	b, err := rdb.Get(t.Context(), key).Bytes()
	if err == redis.Nil {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(b) != 16+12288 || b[4] != 0 {
		t.Fatalf("%s is no dense sketch (%d bytes)", key, len(b))
	}
	return b[16:]
}

func (r *rig) exact(at *realtest.RedisServer) {
	r.t.Helper()
	if f := r.wrong(at); len(f) > 0 {
		r.t.Fatalf("after %d records: %s", r.last, strings.Join(f, "; "))
	}
}
