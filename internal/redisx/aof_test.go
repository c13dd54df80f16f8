package redisx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/realtest"
)

// count is a commit in small: it adds 100 and moves the offset on to n, if the offset is n - 1.
var count = redis.NewScript(`
	if (redis.call('HGET', 'm', 'o') or '0') ~= tostring(ARGV[1] - 1) then return 0 end
	redis.call('HSET', 'm', 'd', 'x')
	redis.call('HINCRBY', 'p', 'f', 100)
	redis.call('HSET', 'm', 'o', ARGV[1])
	return 1`)

// countTo does what the projector does: it reads how far the counts are, and counts on to n. Everything is in the file then: with
// everysec Redis holds writes back while an fsync runs, so that even its own crash may take them.
func countTo(t *testing.T, c redis.Cmdable, n int) {
	t.Helper()
	ctx := deadline(t)
	if err := c.ConfigSet(ctx, "appendfsync", "always").Err(); err != nil {
		t.Fatal(err)
	}
	for i := counted(t, c) + 1; i <= n; i++ {
		if done, err := count.Run(ctx, c, nil, i).Int(); err != nil || done != 1 {
			t.Fatalf("count %d: %d, %v", i, done, err)
		}
	}
}

// counted reads the offset, which the count must agree with.
func counted(t *testing.T, c redis.Scripter) int {
	t.Helper()
	text, err := c.EvalRO(deadline(t), `return (redis.call('HGET', 'm', 'o') or '0') .. ' ' .. (redis.call('HGET', 'p', 'f') or '0')`, nil).Text()
	var offset, sum int
	if err == nil {
		_, err = fmt.Sscan(text, &offset, &sum)
	}
	if err != nil || sum != 100*offset {
		t.Fatalf("offset and count: %q, %v; want 100 for each offset", text, err)
	}
	return offset
}

// crash kills the child and waits for the next.
func crash(t *testing.T, r *Redis) {
	t.Helper()
	pid := r.child.current().Pid()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	realtest.Eventually(t, patience, func() error {
		if p := r.child.current(); p == nil || p.Pid() == pid {
			return errors.New("no new child")
		}
		return r.Commit.Ping(context.Background()).Err()
	})
}

// data is the content of an appendonlydir with its counts, and where its last transaction begins.
type data struct {
	files map[string][]byte
	last  int
}

const incr1, incr2 = "appendonly.aof.1.incr.aof", "appendonly.aof.2.incr.aof"

func written(t *testing.T, counts int) data {
	t.Helper()
	dir := t.TempDir()
	r := open(t, Options{Dir: dir})
	countTo(t, r.Commit, counts)
	if err := r.Close(deadline(t)); err != nil {
		t.Fatal(err)
	}
	d := data{files: map[string][]byte{}}
	entries, err := os.ReadDir(filepath.Join(dir, aofFolder))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		d.files[e.Name()] = contentOf(t, filepath.Join(dir, aofFolder, e.Name()))
	}
	if d.last = bytes.LastIndex(d.files[incr1], []byte(resp("MULTI"))); d.last <= 0 {
		t.Fatalf("no transaction in %q", d.files[incr1])
	}
	return d
}

// folder writes the data, with the given incremental files, into a new folder.
func (d data) folder(t *testing.T, incr ...[]byte) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string][]byte{}
	for name, content := range d.files {
		files[name] = content
	}
	files[incr1] = incr[0]
	if len(incr) > 1 {
		files[incr2] = incr[1]
		files[aofList] = append(bytes.Clone(files[aofList]), "file "+incr2+" seq 2 type i\n"...)
	}
	if err := os.Mkdir(filepath.Join(dir, aofFolder), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, aofFolder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func contentOf(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// kept returns what cuts of a file have kept.
func kept(t *testing.T, dir, name string) (all [][]byte) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, aofFolder, name+".cut-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		all = append(all, contentOf(t, path))
	}
	return all
}

// A power loss may cut the file at any byte. Whatever is left, no part of a transaction is ever counted.
func TestManaged_TornTransaction(t *testing.T) {
	d := written(t, 2)
	whole := d.files[incr1]
	for n := d.last; n <= len(whole); n++ {
		t.Run(strconv.Itoa(n-d.last), func(t *testing.T) {
			t.Parallel()
			dir := d.folder(t, whole[:n])
			path := filepath.Join(dir, aofFolder, incr1)
			r := open(t, Options{Dir: dir})
			want, left := 1, d.last
			if n == len(whole) {
				want, left = 2, n
			}
			if content := contentOf(t, path); !bytes.Equal(content, whole[:left]) {
				t.Errorf("%d bytes are left, want %d", len(content), left)
			}
			if cut := kept(t, dir, incr1); (n == left && cut != nil) || (n > left && (len(cut) != 1 || !bytes.Equal(cut[0], whole[left:n]))) {
				t.Errorf("kept %q, want %q", cut, whole[left:n])
			}
			if got := counted(t, r.Read); got != want {
				t.Fatalf("offset %d, want %d", got, want)
			}
			countTo(t, r.Commit, want+1)
			r.child.current().Kill()
			if err := r.Close(deadline(t)); err != nil { // sooner than the child's next start
				t.Fatal(err)
			}
			if got := counted(t, open(t, Options{Dir: dir}).Read); got != want+1 {
				t.Fatalf("offset %d after a crash, want %d", got, want+1)
			}
		})
	}
}

// What the repair is for. A Redis that has healed this counts 200.
func TestRedisCountsTornHalfTwice(t *testing.T) {
	s := realtest.Redis(t)
	c := s.Client()
	countTo(t, c, 2)
	s.Kill()
	s.CutAOF(20)
	s.Start()
	countTo(t, c, 2)
	s.Kill()
	s.Start()
	sum, err := c.HGet(deadline(t), "p", "f").Int()
	if err != nil || (sum != 200 && sum != 300) {
		t.Fatalf("counted %d, %v; want 200, or 300 with the fault", sum, err)
	}
	t.Logf("redis-server %s counts %d, right is 200", s.Info("server", "redis_version"), sum)
}

// The child's own crash with a torn file, while rollcall runs.
func TestManaged_TornWhileRunning(t *testing.T) {
	var l logs
	dir := t.TempDir()
	r := open(t, Options{Dir: dir, Log: l.logger()})
	for n := 2; n < 5; n++ {
		countTo(t, r.Commit, n)
		spoil(t, filepath.Join(dir, aofFolder, incr1), func(b []byte) []byte { return b[:len(b)-20] })
		crash(t, r)
		if got := counted(t, r.Read); got != n-1 {
			t.Fatalf("offset %d, want %d", got, n-1)
		}
	}
	if cuts := kept(t, dir, incr1); len(cuts) != 1 {
		t.Errorf("%d cuts are kept, want only the last", len(cuts))
	}
	contains(t, l.String(), "level=WARN", "broke off within a transaction", "file="+filepath.Join(dir, aofFolder, incr1), "bytes=", "kept=")
}

// A power loss while a rewrite begins: the file before the last is torn. Redis would take the last without what is missing.
func TestManaged_TornBeforeTheLastFile(t *testing.T) {
	d := written(t, 3)
	text := d.files[incr1]
	one, last := text[:d.last], text[d.last:]
	for name, later := range map[string][]byte{"empty": nil, "not empty": append([]byte(resp("SELECT 0")), last...)} {
		t.Run(name, func(t *testing.T) {
			dir := d.folder(t, one[:len(one)-20], later)
			r := open(t, Options{Dir: dir})
			if got := counted(t, r.Read); got != 1 {
				t.Fatalf("offset %d, want 1", got)
			}
			if cut := kept(t, dir, incr2); (later == nil) != (cut == nil) || later != nil && !bytes.Equal(cut[0], later) {
				t.Errorf("kept %q, want %q", cut, later)
			}
			countTo(t, r.Commit, 3)
			crash(t, r)
			if got := counted(t, r.Read); got != 3 {
				t.Fatalf("offset %d after a crash, want 3", got)
			}
		})
	}
}

// A Redis without the repair has appended to an open MULTI.
func TestManaged_RefusesNestedMULTI(t *testing.T) {
	d := written(t, 3)
	text := d.files[incr1]
	torn := []byte(resp("MULTI", "HSET m d x", "HINCRBY p f 100", "SELECT 0"))
	nested := append(append(bytes.Clone(text[:d.last]), torn...), text[d.last:]...)
	for name, files := range map[string][][]byte{"last file": {nested}, "before the last": {nested, []byte(resp("SELECT 0", "SET k v"))}} {
		t.Run(name, func(t *testing.T) {
			dir := d.folder(t, files...)
			path := filepath.Join(dir, aofFolder, incr1)
			_, err := Open(deadline(t), Options{Dir: dir})
			if !errors.Is(err, ErrUnfit) {
				t.Fatalf("Open: %v, want ErrUnfit", err)
			}
			contains(t, err.Error(), fmt.Sprintf("at byte %d", d.last), fmt.Sprintf("truncate -s %d %s", d.last, path), "journal")
			if !bytes.Equal(contentOf(t, path), nested) {
				t.Error("the refused file is changed")
			}
			if len(files) > 1 {
				contains(t, err.Error(), "truncate -s 0 "+filepath.Join(dir, aofFolder, incr2))
				spoil(t, filepath.Join(dir, aofFolder, incr2), func([]byte) []byte { return nil })
			}
			spoil(t, path, func(b []byte) []byte { return b[:d.last] })
			if got := counted(t, open(t, Options{Dir: dir}).Read); got != 2 {
				t.Errorf("offset %d after the remedy, want 2", got)
			}
		})
	}
}

func TestMendAOF_LeavesAlone(t *testing.T) {
	d := data{files: map[string][]byte{aofList: []byte("file appendonly.aof.1.base.rdb seq 1 type b\nfile " + incr1 + " seq 1 type i\n")}}
	whole := resp("SELECT 0", "MULTI", "SET k v", "EXEC")
	for name, text := range map[string]string{
		"whole": whole, "empty": "", "damaged": whole + "garbage", "damaged within a transaction": whole + resp("MULTI") + "\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			dir := d.folder(t, []byte(text))
			if err := mendAOF(deadline(t), dir, slog.New(slog.DiscardHandler)); err != nil {
				t.Fatal(err)
			}
			if got := contentOf(t, filepath.Join(dir, aofFolder, incr1)); string(got) != text || kept(t, dir, incr1) != nil {
				t.Errorf("%q became %q", text, got)
			}
		})
	}
	if err := mendAOF(deadline(t), t.TempDir(), slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("a folder without data: %v", err)
	}
}

// More than a crash tears: a size that is damaged makes the rest of the file one argument.
func TestMendAOF_RefusesToCutMuch(t *testing.T) {
	d := data{files: map[string][]byte{aofList: []byte("file " + incr1 + " seq 1 type i\n")}}
	whole := resp("SELECT 0")
	dir := d.folder(t, []byte(whole+"*2\r\n$3\r\nDEL\r\n$999999999\r\n"))
	path := filepath.Join(dir, aofFolder, incr1)
	size := int64(mostTorn + len(whole) + 1)
	if err := os.Truncate(path, size); err != nil { // it grows, by a hole
		t.Fatal(err)
	}
	err := mendAOF(deadline(t), dir, slog.New(slog.DiscardHandler))
	if !errors.Is(err, ErrUnfit) {
		t.Fatalf("mendAOF: %v, want ErrUnfit", err)
	}
	contains(t, err.Error(), fmt.Sprintf("truncate -s %d %s", len(whole), path))
	if info, err := os.Stat(path); err != nil || info.Size() != size {
		t.Errorf("the refused file is changed: %v, %v", info, err)
	}
}

// A disk that takes no copy must not keep Redis from its data.
func TestMendAOF_CutsWhatItCannotKeep(t *testing.T) {
	var l logs
	d := data{files: map[string][]byte{aofList: []byte("file " + incr1 + " seq 1 type i\n")}}
	whole := resp("SELECT 0")
	dir := d.folder(t, []byte(whole+resp("MULTI")))
	path := filepath.Join(dir, aofFolder, incr1)
	for now, i := time.Now().Unix(), int64(0); i < 60; i++ { // every name is taken
		if err := os.MkdirAll(filepath.Join(fmt.Sprintf("%s.cut-%d", path, now+i), "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := mendAOF(deadline(t), dir, l.logger()); err != nil {
		t.Fatal(err)
	}
	if got := contentOf(t, path); string(got) != whole {
		t.Errorf("%q is left, want %q", got, whole)
	}
	contains(t, l.String(), "cannot be kept", `kept=""`)
}

func TestMendAOF_Stops(t *testing.T) {
	d := data{files: map[string][]byte{aofList: []byte("file " + incr1 + " seq 1 type i\n")}}
	dir := d.folder(t, []byte(resp("SELECT 0", "MULTI")))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := mendAOF(ctx, dir, slog.New(slog.DiscardHandler)); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
}
