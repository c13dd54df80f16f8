package dedup_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/projection/dedup"
)

const (
	window = 7 * 24 * time.Hour
	day    = 24 * time.Hour
)

func open(t testing.TB, dir, identity string) *dedup.Store {
	t.Helper()
	s, err := dedup.Open(dedup.Options{Dir: dir, Identity: identity, Window: window})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeStore(t testing.TB, s *dedup.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func rec(number uint64, received time.Time, ids ...string) *event.Record {
	r := &event.Record{Header: event.Header{Producer: 1, Number: number, Received: received.UnixMilli()}}
	for _, id := range ids {
		r.Events = append(r.Events, event.Event{Project: "demo", Name: "e", ID: id, Received: received.UnixMilli()})
	}
	return r
}

func judge(t testing.TB, s *dedup.Store, seq uint64, r *event.Record) dedup.Duplicates {
	t.Helper()
	d, err := s.Judge(seq, r)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func want(t testing.TB, what string, got dedup.Duplicates, record bool, events ...int) {
	t.Helper()
	if got.Record != record || len(got.Events)+len(events) > 0 && !reflect.DeepEqual(got.Events, events) {
		t.Fatalf("%s: got %+v, want record %v events %v", what, got, record, events)
	}
}

var t0 = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func TestSameIDIsADuplicateWithinTheWindow(t *testing.T) {
	s := open(t, t.TempDir(), "j")
	defer closeStore(t, s)
	want(t, "first", judge(t, s, 1, rec(1, t0, "a", "b", "", "")), false)
	want(t, "again, and twice in one record", judge(t, s, 2, rec(2, t0, "c", "a", "c")), false, 1, 2)
	want(t, "last moment of the window", judge(t, s, 3, rec(3, t0.Add(window-time.Millisecond), "a")), false, 0)
	want(t, "after the window", judge(t, s, 4, rec(4, t0.Add(window), "a", "b")), false)
	want(t, "a new window has begun", judge(t, s, 5, rec(5, t0.Add(window+day), "b", "c")), false, 0)
}

func TestDD06_IDsBelongToAProject(t *testing.T) {
	s := open(t, t.TempDir(), "j")
	defer closeStore(t, s)
	r := rec(1, t0, "m1", "m1", "m1")
	r.Events[1].Project = "other"
	want(t, "two projects", judge(t, s, 1, r), false, 2)
}

func TestARecordAppendedTwiceIsOneRecord(t *testing.T) {
	s := open(t, t.TempDir(), "j")
	defer closeStore(t, s)
	want(t, "first", judge(t, s, 1, rec(7, t0, "", "")), false)
	want(t, "other number", judge(t, s, 2, rec(8, t0, "", "")), false)
	want(t, "again", judge(t, s, 3, rec(7, t0.Add(time.Second), "", "")), true)
}

func TestReadingAgainGivesTheSameVerdict(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, "j")
	rng := rand.New(rand.NewPCG(1, 2))
	var recs []*event.Record
	var verdicts []dedup.Duplicates
	for i := range 400 {
		r := rec(uint64(i), t0.Add(time.Duration(i)*time.Hour))
		if i%50 == 49 {
			r.Number = uint64(i - 20)
		}
		for range rng.IntN(20) {
			id := fmt.Sprint(rng.IntN(1500))
			r.Events = append(r.Events, event.Event{Project: "demo", ID: id, Received: r.Received})
		}
		recs = append(recs, r)
		verdicts = append(verdicts, judge(t, s, uint64(i+1), r))
		if i%90 == 0 {
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	dups := 0
	for _, d := range verdicts {
		dups += len(d.Events)
	}
	if dups < 100 {
		t.Fatalf("only %d duplicates: the test shows nothing", dups)
	}
	again := func(what string, s *dedup.Store, from int) {
		t.Helper()
		for i := from; i < len(recs); i++ {
			if got := judge(t, s, uint64(i+1), recs[i]); !reflect.DeepEqual(got, verdicts[i]) {
				t.Fatalf("%s: record %d: got %+v, want %+v", what, i+1, got, verdicts[i])
			}
		}
	}
	again("same store", s, 0)
	closeStore(t, s)
	s = open(t, dir, "j")
	if s.Offset() != 400 {
		t.Fatalf("offset after close: %d, want 400", s.Offset())
	}
	again("after a restart", s, 0)
	closeStore(t, s)
	s = open(t, t.TempDir(), "j")
	again("made anew from the journal", s, 0)
	closeStore(t, s)
}

// A store that dies loses its tail, but never a part of what its offset claims.
func TestACrashLosesOnlyTheTail(t *testing.T) {
	dir, copied := t.TempDir(), t.TempDir()
	s := open(t, dir, "j")
	for i := range uint64(300) {
		judge(t, s, i+1, rec(i, t0, fmt.Sprint("id", i), "same"))
		if i%40 == 0 {
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The folder as a killed process leaves it: what is in files, without a clean close.
	if err := os.CopyFS(filepath.Join(copied, "store"), os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	s = open(t, filepath.Join(copied, "store"), "j")
	defer closeStore(t, s)
	for i := s.Offset(); i < 300; i++ {
		var events []int
		if i > 0 {
			events = []int{1}
		}
		want(t, fmt.Sprint("record ", i+1), judge(t, s, i+1, rec(i, t0, fmt.Sprint("id", i), "same")), false, events...)
	}
	for i := range uint64(300) {
		want(t, "all ids known", judge(t, s, 301+i, rec(1000+i, t0, fmt.Sprint("id", i))), false, 0)
	}
}

func TestAStoreOfAnotherJournalIsMadeAnew(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, "j")
	judge(t, s, 1, rec(1, t0, "a"))
	closeStore(t, s)
	s = open(t, dir, "k")
	defer closeStore(t, s)
	if s.Offset() != 0 {
		t.Fatalf("offset %d, want 0", s.Offset())
	}
	want(t, "new", judge(t, s, 1, rec(1, t0, "a")), false)
}

func TestADamagedStoreIsMadeAnew(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, "j")
	judge(t, s, 1, rec(1, t0, "a"))
	closeStore(t, s)
	files, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
	if err != nil || len(files) == 0 {
		t.Fatal("no manifest", err)
	}
	for _, f := range files {
		if err := os.WriteFile(f, []byte("damaged"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, dir, "j")
	defer closeStore(t, s)
	if s.Offset() != 0 {
		t.Fatalf("offset %d, want 0", s.Offset())
	}
}

// A flipped byte anywhere in the tables ends in a store that is right or in an error, never in the end of the process.
func TestADamagedTableIsAnErrorOrMadeAnew(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, "j")
	const n = 20_000
	for i := range uint64(n / 100) {
		ids := make([]string, 100)
		for j := range ids {
			ids[j] = fmt.Sprint(i, "-", j)
		}
		judge(t, s, i+1, rec(i, t0, ids...))
	}
	closeStore(t, s)
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal("no tables", err)
	}
	for _, table := range tables {
		good, err := os.ReadFile(table)
		if err != nil {
			t.Fatal(err)
		}
		for at := len(good) / 7; at < len(good); at += len(good) / 7 {
			hurt := filepath.Join(t.TempDir(), "store")
			if err := os.CopyFS(hurt, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			bad := append([]byte(nil), good...)
			bad[at] ^= 0x40
			if err := os.WriteFile(filepath.Join(hurt, filepath.Base(table)), bad, 0o600); err != nil {
				t.Fatal(err)
			}
			s := open(t, hurt, "j")
			offset := s.Offset()
			for i := range uint64(n / 100) {
				d, err := s.Judge(offset+1+i, rec(9000+i, t0, fmt.Sprint(i, "-", 3)))
				if err != nil {
					break // the projector makes the store anew
				}
				if offset > 0 && len(d.Events) != 1 {
					t.Fatalf("%s, byte %d: an id is forgotten in silence", filepath.Base(table), at)
				}
			}
			_ = s.Close() // may fail for the same reason
		}
	}
}

func TestAGapIsAnError(t *testing.T) {
	s := open(t, t.TempDir(), "j")
	defer closeStore(t, s)
	judge(t, s, 1, rec(1, t0, "a"))
	if _, err := s.Judge(3, rec(2, t0, "b")); err == nil {
		t.Fatal("record 3 after record 1 was judged")
	}
	s.Skip(2)
	want(t, "after Skip", judge(t, s, 3, rec(2, t0, "a")), false, 0)
}

func TestExpiry(t *testing.T) {
	s := open(t, t.TempDir(), "j")
	defer closeStore(t, s)
	judge(t, s, 1, rec(1, t0, "a"))
	judge(t, s, 2, rec(2, t0, "a"))
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := s.Expire(t0.Add(2*day).UnixMilli(), 1); err != nil {
		t.Fatal(err)
	}
	want(t, "verdict is kept as long as its record", judge(t, s, 2, rec(2, t0, "a")), false, 0)
	want(t, "still in the window", judge(t, s, 3, rec(3, t0.Add(2*day), "a")), false, 0)
	if err := s.Expire(t0.Add(30*day).UnixMilli(), 3); err != nil {
		t.Fatal(err)
	}
	want(t, "forgotten", judge(t, s, 4, rec(4, t0.Add(30*day), "a")), false)
}

// The filter may be far too small for what it holds: slower, never wrong.
func TestASaturatedFilterIsStillRight(t *testing.T) {
	s, err := dedup.Open(dedup.Options{Dir: t.TempDir(), Identity: "j", Window: window, FilterBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, s)
	const n = 600_000 // more than twice what the first layer is made for
	for i := range uint64(n / 1000) {
		ids := make([]string, 1000)
		for j := range ids {
			ids[j] = fmt.Sprint(i, "-", j)
		}
		want(t, "new", judge(t, s, i+1, rec(i, t0, ids...)), false)
	}
	for i := range uint64(n / 1000) {
		want(t, "old", judge(t, s, n/1000+i+1, rec(1_000_000+i, t0, fmt.Sprint(i, "-", 7), "x"+fmt.Sprint(i))), false, 0)
	}
}

func BenchmarkJudge(b *testing.B) {
	s := open(b, b.TempDir(), "j")
	const per = 1000
	r := rec(0, t0, make([]string, per)...)
	buf := make([]byte, 0, per*36)
	seq := uint64(0)
	b.ReportAllocs()
	for i := 0; i < b.N; i += per {
		b.StopTimer()
		buf = buf[:0]
		for j := range r.Events {
			n := len(buf)
			buf = fmt.Appendf(buf, "%08x-0000-4000-8000-%012x", i+j, rand.Uint64()>>16)
			r.Events[j].ID = string(buf[n:])
		}
		seq++
		r.Number = seq
		b.StartTimer()
		if _, err := s.Judge(seq, r); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	closeStore(b, s)
}
