package journal

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// hurtQuota makes JetStream choose blocks of 32,000 bytes, so that a small store has several.
const hurtQuota = 127_000

// store is a folder with records in several block files, made once and copied for each way to hurt it.
type store struct {
	dir     string
	records []Entry // from sequence `first`
	first   uint64
}

// makeStore fills four blocks with records of 800 bytes, trims into the second block if asked, and leaves the files as a clean
// stop or as a kill leaves them.
func makeStore(t *testing.T, trimmed, clean bool) *store {
	t.Helper()
	s := &store{dir: t.TempDir(), first: 1}
	o := Options{Dir: s.dir, MaxBytes: hurtQuota, MaxAge: 1, Slack: 1}
	j := opened(t, o)
	for i := range 140 {
		appended(t, j, chunk(700, strconv.Itoa(i)))
	}
	if trimmed {
		if err := j.Trim(t.Context(), 60); err != nil {
			t.Fatal(err)
		}
		s.first = 61
	}
	var err error
	if s.records, err = readAll(t, j, s.first); err != nil {
		t.Fatal(err)
	}
	if clean {
		closed(t, j)
		return s
	}
	// The files of a running journal, without what a clean stop writes.
	live := t.TempDir()
	if err := os.CopyFS(live, os.DirFS(s.dir)); err != nil {
		t.Fatal(err)
	}
	closed(t, j)
	s.dir = live
	return s
}

func (s *store) copy(t *testing.T) (dir, stream, msgs string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(s.dir)); err != nil {
		t.Fatal(err)
	}
	stream = filepath.Join(dir, "nats/jetstream/$G/streams/ROLLCALL")
	return dir, stream, filepath.Join(stream, "msgs")
}

// blocks lists the block files in order.
func blocks(t *testing.T, msgs string) (paths []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(msgs, "*.blk"))
	if err != nil || len(paths) < 3 {
		t.Fatalf("blocks: %d, %v", len(paths), err)
	}
	slices.SortFunc(paths, func(a, b string) int {
		x, _ := strconv.Atoi(filepath.Base(a[:len(a)-4]))
		y, _ := strconv.Atoi(filepath.Base(b[:len(b)-4]))
		return x - y
	})
	return paths
}

// lastMessage is the offset of the last message in a block.
func lastMessage(b []byte) (at int) {
	for {
		next := at + int(binary.LittleEndian.Uint32(b[at:])&^(1<<31))
		if next >= len(b) {
			return at
		}
		at = next
	}
}

func edit(t *testing.T, path string, f func(b []byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, f(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

// flip turns one bit of the nth message in a block, at an offset in that message (negative: from its end).
func flip(nth, offset int) func([]byte) []byte {
	return func(b []byte) []byte {
		at := 0
		for ; nth > 0; nth-- {
			at += int(binary.LittleEndian.Uint32(b[at:]) &^ (1 << 31))
		}
		if offset < 0 {
			offset += int(binary.LittleEndian.Uint32(b[at:]) &^ (1 << 31))
		}
		b[at+offset] ^= 4
		return b
	}
}

func remove(t *testing.T, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if err := os.RemoveAll(p); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever is done to the files, each acknowledged record is either read back as it was, or an error says that it is not there.
func TestHurtOnPurpose(t *testing.T) {
	// Where in a message: JetStream's own header is length (4), sequence (8), time (8), subject length (2); at its end a hash (8).
	places := map[string]int{"length": 0, "length-high": 3, "sequence": 4, "time": 13, "subject-length": 20, "subject": 24, "record": 300, "hash": -3}
	type harm struct {
		name string
		do   func(t *testing.T, dir, stream, msgs string)
		// intact: nothing is lost by it, so nothing may be missing. lost: something is, so there must be an error.
		intact, lost bool
		tail         bool // in a trimmed store the last block ends with JetStream's own marks: cutting these loses no record
	}
	var harms []harm
	for place, offset := range places {
		for _, where := range []struct {
			name       string
			block, nth int
		}{{"first", 0, 0}, {"head-block", 0, 30}, {"middle", 1, 5}, {"middle-head", 1, 0}, {"last-block", -1, 1}} {
			harms = append(harms, harm{name: "flip-" + place + "-" + where.name, do: func(t *testing.T, _, _, msgs string) {
				files := blocks(t, msgs)
				edit(t, files[(where.block+len(files))%len(files)], flip(where.nth, offset))
			}})
		}
	}
	del := func(block int) func(*testing.T, string, string, string) {
		return func(t *testing.T, _, _, msgs string) {
			files := blocks(t, msgs)
			remove(t, files[(block+len(files))%len(files)])
		}
	}
	cut := func(block int, keep func(b []byte) int) func(*testing.T, string, string, string) {
		return func(t *testing.T, _, _, msgs string) {
			files := blocks(t, msgs)
			edit(t, files[(block+len(files))%len(files)], func(b []byte) []byte { return b[:keep(b)] })
		}
	}
	harms = append(harms,
		harm{name: "nothing", do: func(*testing.T, string, string, string) {}, intact: true},
		harm{name: "torn-tail", do: cut(-1, func(b []byte) int { return len(b) - 400 }), lost: true, tail: true},
		harm{name: "tail-less-one-record", do: cut(-1, lastMessage), lost: true, tail: true},
		harm{name: "last-block-empty", do: cut(-1, func([]byte) int { return 0 }), lost: true},
		harm{name: "middle-block-cut", do: cut(1, func(b []byte) int { return len(b) / 2 }), lost: true},
		harm{name: "middle-block-empty", do: cut(1, func([]byte) int { return 0 }), lost: true},
		harm{name: "first-block-empty", do: cut(0, func([]byte) int { return 0 }), lost: true},
		harm{name: "last-block-gone", do: del(-1), lost: true},
		harm{name: "middle-block-gone", do: del(1), lost: true},
		harm{name: "first-block-gone", do: del(0), lost: true},
		harm{name: "all-blocks-gone", lost: true, do: func(t *testing.T, _, _, msgs string) { remove(t, blocks(t, msgs)...) }},
		harm{name: "tail-of-zeros", intact: true, do: func(t *testing.T, _, _, msgs string) {
			files := blocks(t, msgs)
			edit(t, files[len(files)-1], func(b []byte) []byte { return append(b, make([]byte, 4096)...) })
		}},
		harm{name: "index-gone", intact: true, do: func(t *testing.T, _, _, msgs string) { remove(t, filepath.Join(msgs, "index.db")) }},
		harm{name: "index-rubbish", intact: true, do: func(t *testing.T, _, _, msgs string) {
			if err := os.WriteFile(filepath.Join(msgs, "index.db"), []byte(noise(500)), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		harm{name: "index-and-last-block-gone", lost: true, do: func(t *testing.T, a, b, msgs string) {
			remove(t, filepath.Join(msgs, "index.db"))
			del(-1)(t, a, b, msgs)
		}},
		harm{name: "index-and-first-block-gone", lost: true, do: func(t *testing.T, a, b, msgs string) {
			remove(t, filepath.Join(msgs, "index.db"))
			del(0)(t, a, b, msgs)
		}},
		harm{name: "meta-gone", do: func(t *testing.T, _, stream, _ string) { remove(t, filepath.Join(stream, "meta.inf")) }},
		harm{name: "meta-flipped", do: func(t *testing.T, _, stream, _ string) {
			edit(t, filepath.Join(stream, "meta.inf"), func(b []byte) []byte { b[len(b)/2] ^= 4; return b })
		}},
		harm{name: "stream-gone", lost: true, do: func(t *testing.T, _, stream, _ string) { remove(t, stream) }},
		harm{name: "store-gone", lost: true, do: func(t *testing.T, dir, _, _ string) { remove(t, filepath.Join(dir, "nats")) }},
		harm{name: "guard-half-flipped", intact: true, do: func(t *testing.T, dir, _, _ string) {
			edit(t, filepath.Join(dir, guardName), func(b []byte) []byte { b[10] ^= 1; return b })
		}},
	)
	for _, kind := range []struct {
		name           string
		trimmed, clean bool
	}{{"stopped", false, true}, {"killed", false, false}, {"trimmed-stopped", true, true}, {"trimmed-killed", true, false}} {
		s := makeStore(t, kind.trimmed, kind.clean)
		for _, h := range harms {
			t.Run(kind.name+"/"+h.name, func(t *testing.T) {
				dir, stream, msgs := s.copy(t)
				h.do(t, dir, stream, msgs)
				s.check(t, dir, h.intact, h.lost && !(h.tail && kind.trimmed))
			})
		}
	}
}

// check opens a hurt folder and holds what it says against what was acknowledged.
func (s *store) check(t *testing.T, dir string, intact, lost bool) {
	t.Helper()
	fail := func(err error) {
		t.Helper()
		t.Logf("loud: %v", err)
		if intact {
			t.Fatalf("nothing was lost, but: %v", err)
		}
	}
	j, err := Open(t.Context(), Options{Dir: dir, MaxBytes: hurtQuota, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		if !errors.Is(err, ErrLostRecords) && !errors.Is(err, ErrIdentity) && !errors.Is(err, errGuardDamaged) {
			t.Fatalf("Open: an error that names no loss: %v", err)
		}
		fail(err)
		return
	}
	defer closed(t, j)
	last := s.first + uint64(len(s.records)) - 1
	entries, err := readAll(t, j, s.first)
	if err != nil {
		fail(err)
	} else if lost {
		t.Fatalf("records were lost and no error told so")
	} else if len(entries) < len(s.records) {
		t.Fatalf("%d records read without an error, %d were acknowledged", len(entries), len(s.records))
	}
	for i, e := range entries {
		if i < len(s.records) && !slices.Equal(e.Data, s.records[i].Data) {
			t.Fatalf("record %d is not what was acknowledged", e.Seq)
		}
	}
	for _, want := range s.records {
		e, err := j.Get(t.Context(), want.Seq)
		if err != nil {
			if intact {
				t.Fatalf("nothing was lost, but: %v", err)
			}
			continue
		}
		if !slices.Equal(e.Data, want.Data) {
			t.Fatalf("Get(%d) is not what was acknowledged", want.Seq)
		}
	}
	if r, err := j.Append(t.Context(), chunk(0, "after")); err == nil && r.Seq <= last {
		t.Fatalf("sequence %d was given a second time", r.Seq)
	} else if err != nil && intact {
		t.Fatal(err)
	}
}

// Damage that comes while the journal is open is met by the reader, not passed over.
func TestHurtWhileOpen(t *testing.T) {
	s := makeStore(t, false, true)
	for name, hurt := range map[string]func([]byte) []byte{
		"record": flip(5, 300), "length": flip(5, 1), "cut": func(b []byte) []byte { return b[:len(b)/2] },
	} {
		t.Run(name, func(t *testing.T) {
			dir, _, msgs := s.copy(t)
			j := opened(t, Options{Dir: dir, MaxBytes: hurtQuota})
			edit(t, blocks(t, msgs)[1], hurt)
			_, err := readAll(t, j, 1)
			wantErr(t, err, ErrGap)
		})
	}
}

// Who deletes the guard accepts the store as it is; the journal is then another one.
func TestAcceptedLossGivesANewIdentity(t *testing.T) {
	s := makeStore(t, false, true)
	dir, _, msgs := s.copy(t)
	remove(t, filepath.Join(msgs, "index.db"), blocks(t, msgs)[len(blocks(t, msgs))-1])
	_, err := Open(t.Context(), Options{Dir: dir, MaxBytes: hurtQuota, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	wantErr(t, err, ErrLostRecords)
	whole := opened(t, Options{Dir: s.dir, MaxBytes: hurtQuota})
	remove(t, filepath.Join(dir, guardName))
	j := opened(t, Options{Dir: dir, MaxBytes: hurtQuota})
	if j.Identity() == whole.Identity() {
		t.Fatalf("the identity is still %s", j.Identity())
	}
	appended(t, j, chunk(0, "goes on"))
	closed(t, j)
	again := opened(t, Options{Dir: dir, MaxBytes: hurtQuota})
	if again.Identity() != j.Identity() {
		t.Fatalf("the new identity %s did not last: %s", j.Identity(), again.Identity())
	}
}

func TestGuardDamagedOnBothSides(t *testing.T) {
	dir := t.TempDir()
	j := opened(t, Options{Dir: dir})
	appended(t, j, chunk(0, "a"))
	closed(t, j)
	edit(t, filepath.Join(dir, guardName), func(b []byte) []byte { b[10] ^= 1; b[guardSlot+10] ^= 1; return b })
	_, err := Open(t.Context(), Options{Dir: dir})
	wantErr(t, err, errGuardDamaged)
	// The folder is free again: the failed Open left neither server nor lock behind.
	if _, err := os.Stat(filepath.Join(dir, guardName)); errors.Is(err, fs.ErrNotExist) {
		t.Fatal("the guard file is gone")
	}
	remove(t, filepath.Join(dir, guardName))
	opened(t, Options{Dir: dir})
}
