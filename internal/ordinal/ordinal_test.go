package ordinal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/ident"
	"github.com/rollcall/rollcall/internal/projection"
	"github.com/rollcall/rollcall/internal/projection/drive"
	"github.com/rollcall/rollcall/internal/realtest"
)

const shards = 4

// model numbers users the plain way.
type model struct {
	ordinals map[string][]string          // users by project and shard, in order
	of       map[string]map[string]uint32 // by project
}

// witness stands behind the ordinals in the list, as every projection that uses them, and compares what it is given.
type witness struct {
	t testing.TB
	m model
	n int
}

func (*witness) Name() string { return "witness" }
func (*witness) Reset()       {}

func (w *witness) Project(_ context.Context, b *projection.Batch, _ *projection.Tx) error {
	for _, r := range b.Records {
		for _, e := range r.Events {
			if e.User == "" || e.Bot {
				if e.UserShard != 0 || e.Ordinal != 0 {
					w.t.Fatalf("record %d: an event without a user has ordinal %d/%d", r.Seq, e.UserShard, e.Ordinal)
				}
				continue
			}
			shard := ident.Shard(shards, e.Project, e.User)
			space := e.Project + ident.Tag(shard)
			if w.m.of[e.Project] == nil {
				w.m.of[e.Project] = map[string]uint32{}
			}
			want, ok := w.m.of[e.Project][e.User]
			if !ok {
				want = uint32(len(w.m.ordinals[space]))
				w.m.ordinals[space] = append(w.m.ordinals[space], e.User)
				w.m.of[e.Project][e.User] = want
			}
			if int(e.UserShard) != shard || e.Ordinal != want {
				w.t.Fatalf("record %d: %s of %s is %d/%d, want %d/%d", r.Seq, e.User, e.Project, e.UserShard, e.Ordinal, shard, want)
			}
			w.n++
		}
	}
	return nil
}

func newWitness(t testing.TB) *witness {
	return &witness{t: t, m: model{map[string][]string{}, map[string]map[string]uint32{}}}
}

// user makes names of every form: short, integer, UUID, long.
func user(n int) string {
	switch n % 5 {
	case 0:
		return fmt.Sprintf("%08x-0000-4000-8000-%012x", n*2654435761%(1<<32), n)
	case 1:
		return strconv.Itoa(1_000_000 + n)
	case 2:
		return "用户" + strconv.Itoa(n)
	case 3:
		if n%50 == 3 {
			return strings.Repeat("long", 40) + strconv.Itoa(n)
		}
	}
	return "user-" + strconv.Itoa(n)
}

// Replays, kills between the commits of any two shards, and a cache too small for the users change no ordinal.
func TestOrdinalsThroughFaults(t *testing.T) {
	for _, cacheUsers := range []int{DefaultCacheUsers, 300} {
		t.Run(fmt.Sprint("cache=", cacheUsers), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(1, uint64(cacheUsers)))
			rdb := realtest.Redis(t).Client()
			w := newWitness(t)
			d := drive.New(t, rdb, shards, NewProjection(Options{CacheUsers: cacheUsers}), w)
			for range 120 {
				var events []event.Event
				for range rnd.IntN(400) {
					e := event.Event{Project: []string{"demo", "demo", "two"}[rnd.IntN(3)], User: user(rnd.IntN(1 + rnd.IntN(9000)))}
					switch rnd.IntN(20) {
					case 0:
						e.User = ""
					case 1:
						e.Bot = true
					}
					events = append(events, e)
				}
				d.Write(1, events...)
			}
			d.RunHurt(rnd, 12)
			if w.n < 20_000 {
				t.Fatalf("only %d events were compared", w.n)
			}
			checkDictionary(t, rdb, w.m)
		})
	}
}

// checkDictionary compares what can be read with the model.
func checkDictionary(t *testing.T, rdb *redis.Client, m model) {
	t.Helper()
	ctx := context.Background()
	dict := NewDictionary(rdb, shards)
	for project, users := range m.of {
		counts, err := dict.Counts(ctx, project)
		if err != nil {
			t.Fatal(err)
		}
		for shard, n := range counts {
			want := m.ordinals[project+ident.Tag(shard)]
			if int(n) != len(want) {
				t.Fatalf("%s has %d users in shard %d, want %d", project, n, shard, len(want))
			}
			ordinals := make([]uint32, n)
			for i := range ordinals {
				ordinals[i] = n - 1 - uint32(i)
			}
			names, err := dict.Names(ctx, project, shard, ordinals)
			if err != nil {
				t.Fatal(err)
			}
			for i, name := range names {
				if name != want[ordinals[i]] {
					t.Fatalf("%s: ordinal %d of shard %d is %q, want %q", project, ordinals[i], shard, name, want[ordinals[i]])
				}
			}
		}
		looked := 0
		for name, want := range users {
			if looked++; looked > 500 {
				break
			}
			shard, o, known, err := dict.LookUp(ctx, project, name)
			if err != nil || !known || o != want || shard != ident.Shard(shards, project, name) {
				t.Fatalf("%s of %s is %d/%d %v, %v; want %d", name, project, shard, o, known, err, want)
			}
		}
		for _, stranger := range []string{"nobody", user(1_000_000), strings.Repeat("z", 200)} {
			if _, _, known, err := dict.LookUp(ctx, project, stranger); known || err != nil {
				t.Fatalf("%q is known: %v", stranger, err)
			}
		}
	}
	if _, _, known, err := dict.LookUp(ctx, "other", "user-4"); known || err != nil {
		t.Fatalf("another project knows the user: %v", err)
	}
}

// ID-07 and its like: names that look alike are different users.
func TestUsersThatLookAlike(t *testing.T) {
	rdb := realtest.Redis(t).Client()
	w := newWitness(t)
	d := drive.New(t, rdb, shards, NewProjection(Options{}), w)
	alike := []string{"u1", "U1", "u1 ", "１", "1", "01", "é", "e\u0301", "01234567-89ab-cdef-0123-456789abcdef", "01234567-89AB-CDEF-0123-456789ABCDEF",
		"9007199254740992", "9007199254740993", strings.Repeat("x", 60), strings.Repeat("x", 61), strings.Repeat("x", 256), "a:b", "a%3ab", "*"}
	for _, u := range alike {
		d.Write(1, event.Event{User: u}, event.Event{User: u})
	}
	d.Run(3)
	d.Restart()
	for _, u := range alike {
		d.Write(1, event.Event{User: u})
	}
	d.Run(5)
	if got := len(w.m.of["demo"]); got != len(alike) {
		t.Errorf("%d users, want %d", got, len(alike))
	}
	checkDictionary(t, rdb, w.m)
}

// What is not what it should be is an error, and is never written over.
func TestDamage(t *testing.T) {
	ctx := context.Background()
	shard := ident.Shard(shards, "demo", "u1")
	base := keyBase(shard, "demo")
	bucket := keyOf(base, 0, placeOf(shards, "demo", "u1").tag, "u1")
	for name, hurt := range map[string]func(rdb *redis.Client){
		"count is no number": func(rdb *redis.Client) { rdb.Set(ctx, countKey(base), "x", 0) },
		"count of zero":      func(rdb *redis.Client) { rdb.Set(ctx, countKey(base), "0", 0) },
		"count too large":    func(rdb *redis.Client) { rdb.Set(ctx, countKey(base), "2147483649", 0) },
		"count of a type":    func(rdb *redis.Client) { rdb.Del(ctx, countKey(base)); rdb.LPush(ctx, countKey(base), 1) },
		"ordinal beyond":     func(rdb *redis.Client) { rdb.HSet(ctx, bucket, "u1", "4000") },
		"no ordinal":         func(rdb *redis.Client) { rdb.HSet(ctx, bucket, "u1", "one") },
		"bucket of a type":   func(rdb *redis.Client) { rdb.Set(ctx, bucket, "x", 0) },
	} {
		t.Run(name, func(t *testing.T) {
			rdb := realtest.Redis(t).Client()
			d := drive.New(t, rdb, shards, NewProjection(Options{}))
			d.Write(1, event.Event{User: "u1"})
			d.Run(1)
			hurt(rdb)
			before := rdb.Dump(ctx, bucket).Val()
			d.Restart()
			d.Write(2, event.Event{User: "u1"})
			if err := d.Batch(1, nil); err == nil {
				t.Error("the projection took it")
			}
			if rdb.Dump(ctx, bucket).Val() != before {
				t.Error("the bucket was written over")
			}
			if name == "ordinal beyond" {
				return // of a reader's sight it may have come meanwhile
			}
			_, _, known, err := NewDictionary(rdb, shards).LookUp(ctx, "demo", "u1")
			var e *apperr.Error
			if known || !errors.As(err, &e) || e.Code != "damaged_dictionary" {
				t.Errorf("looked up: %v, %v", known, err)
			}
		})
	}
	t.Run("user gone", func(t *testing.T) {
		rdb := realtest.Redis(t).Client()
		d := drive.New(t, rdb, shards, NewProjection(Options{}))
		d.Write(1, event.Event{User: "u1"})
		d.Write(1, event.Event{User: "u2"})
		lag := ident.Shard(shards, "demo", "u2")
		if lag == shard {
			t.Fatal("the test's users share a shard")
		}
		if err := d.Batch(2, func(_, s int) bool { return s != lag }); err != nil {
			t.Fatal(err)
		}
		rdb.Del(ctx, bucket)
		d.Restart()
		if err := d.Batch(2, nil); err == nil || !strings.Contains(err.Error(), "is not in the dictionary") {
			t.Errorf("error %v", err)
		}
		if _, err := NewDictionary(rdb, shards).Names(ctx, "demo", shard, []uint32{0}); err == nil {
			t.Error("a name of an ordinal whose user is gone")
		}
	})
}

// A million users take at most 45 bytes of Redis each.
func TestBytesPerUser(t *testing.T) {
	users := 200_000
	if os.Getenv("ROLLCALL_LONG") != "" {
		users = 1_000_000
	}
	for name, of := range map[string]func(n int) string{
		"uuid": func(n int) string {
			return fmt.Sprintf("%08x-%04x-4000-8000-%012x", n*2654435761%(1<<32), n%65536, n*7919)
		},
		"string":  func(n int) string { return fmt.Sprintf("user-%09d", n*7919) },
		"integer": func(n int) string { return strconv.Itoa(100_000_000 + n*37) },
	} {
		t.Run(name, func(t *testing.T) {
			rdb := realtest.Redis(t).Client()
			d := drive.New(t, rdb, 16, NewProjection(Options{}))
			before := usedMemory(t, rdb)
			for n := 0; n < users; {
				var events []event.Event
				for range 5000 {
					events = append(events, event.Event{User: of(n)})
					n++
				}
				d.Write(1, events...)
			}
			d.Run(4)
			each := float64(usedMemory(t, rdb)-before) / float64(users)
			t.Logf("%d users: %.1f bytes of Redis each, %.1f bytes written each", users, each, float64(d.Bytes)/float64(users))
			if each > 45 {
				t.Errorf("%.1f bytes a user, want at most 45", each)
			}
		})
	}
}

func usedMemory(t testing.TB, rdb *redis.Client) int64 {
	t.Helper()
	info, err := rdb.InfoMap(context.Background(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(info["Memory"]["used_memory"], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestCacheIsBounded(t *testing.T) {
	c := newCache(1000)
	for n := range uint64(10_000) {
		c.put(cacheKey{n, n}, found{uint32(n), 0})
		if f, ok := c.get(cacheKey{7, 7}); n >= 7 && (!ok || f.ordinal != 7) {
			t.Fatalf("one that is always looked up is gone after %d", n)
		}
	}
	if size := len(c.young) + len(c.old); size > 1000 || c.losses == 0 {
		t.Errorf("%d users remembered, lost %d times", size, c.losses)
	}
}

// BenchmarkProject is what ordinals cost an event whose user is known.
func BenchmarkProject(b *testing.B) {
	for _, users := range []int{1000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint("users=", users), func(b *testing.B) {
			rdb := realtest.Redis(b).Client()
			p := NewProjection(Options{})
			d := drive.New(b, rdb, 16, p)
			for n := 0; n < users; {
				var events []event.Event
				for range min(users, 5000) {
					events = append(events, event.Event{User: fmt.Sprint("user-", n)})
					n++
				}
				d.Write(1, events...)
			}
			d.Run(4)
			rnd := rand.New(rand.NewPCG(1, 1))
			rec := projection.Record{Seq: 1}
			for range 50_000 {
				rec.Events = append(rec.Events, event.Event{Project: "demo", User: fmt.Sprint("user-", rnd.IntN(users))})
			}
			batch := &projection.Batch{Records: []projection.Record{rec}}
			for b.Loop() {
				if err := p.Project(context.Background(), batch, projection.NewTx(16, nil, nil)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/50_000, "ns/event")
		})
	}
}
