package redisx

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/realtest"
	"github.com/rollcall/rollcall/internal/redisx/server"
)

func wantKey(t *testing.T, r *Redis) {
	t.Helper()
	if got, err := r.Read.Get(deadline(t), "k").Result(); got != "v" || err != nil {
		t.Fatalf("GET k = %q, %v; want v", got, err)
	}
}

// gone tells whether a process has ended. In a container nobody may ever collect it: a zombie has ended too.
func gone(pid int) error {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil && bytes.Contains(stat, []byte(") Z ")) {
		return nil
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("process %d: %v, want none", pid, err)
	}
	return nil
}

func TestManaged_StartStopStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), `a "quoted" folder`)
	ctx := deadline(t)
	r := open(t, Options{Dir: dir})
	if i := r.Info(); i.Version == "" || i.Mode != "single" || !i.Managed {
		t.Errorf("Info = %+v", i)
	}
	for _, name := range []string{dir, filepath.Join(dir, "run")} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v; want mode 0700", name, info.Mode(), err)
		}
	}
	config := r.Commit.ConfigGet(ctx, "*").Val()
	for name, want := range map[string]string{"port": "0", "appendonly": "yes", "appendfsync": "everysec", "save": "", "maxmemory-policy": "noeviction"} {
		if config[name] != want {
			t.Errorf("%s = %q, want %q", name, config[name], want)
		}
	}
	if err := r.Commit.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	pid := r.child.current().Pid()
	if err := r.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := gone(pid); err != nil {
		t.Fatal(err)
	}
	wantKey(t, open(t, Options{Dir: dir}))
}

func TestManaged_KilledChildComesBack(t *testing.T) {
	var l logs
	r := open(t, Options{Dir: t.TempDir(), Log: l.logger()})
	ctx := deadline(t)
	if err := r.Commit.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		pid := r.child.current().Pid()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		realtest.Eventually(t, patience, func() error {
			if p := r.child.current(); p == nil || p.Pid() == pid {
				return errors.New("no new child")
			}
			return r.CheckServer(ctx)
		})
		realtest.Eventually(t, patience, func() error { return r.Commit.Ping(ctx).Err() })
		wantKey(t, r)
	}
	contains(t, l.String(), "level=ERROR", "starting it again", "signal: killed", "level=DEBUG")
}

// killedParent runs a rollcall on the folder, kills it with SIGKILL, and returns its child's process id.
func killedParent(t *testing.T, dir string) int {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "REDISX_TEST_VICTIM="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	_ = cmd.Process.Kill()
	t.Cleanup(func() { _ = cmd.Wait() })
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("victim: %q", line)
	}
	return pid
}

func TestManaged_StartRightAfterKill(t *testing.T) {
	dir := t.TempDir()
	killedParent(t, dir)
	began := time.Now()
	r := open(t, Options{Dir: dir})
	t.Logf("open again %v after kill -9", time.Since(began))
	wantKey(t, r)
}

// A child that its parent's death did not end, as on systems without a parent-death signal.
func TestManaged_OrphanIsAskedToEnd(t *testing.T) {
	dir := t.TempDir()
	ctx := deadline(t)
	binary, err := server.Find()
	if err != nil {
		t.Fatal(err)
	}
	sock, err := socketPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := lockFile(ctx, filepath.Join(dir, childLock), func() error { return ErrInUse })
	if err != nil {
		t.Fatal(err)
	}
	old, err := server.Start(binary, []string{"-"}, (&child{dir: dir, sock: sock}).config(), &logs{}, lock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(old.Kill)
	_ = lock.Close()
	realtest.Eventually(t, patience, func() error { return server.Ping(ctx, "unix", sock) })
	c, _ := target{mode: "single", options: optionsOf(sock)}.clients()
	if err := c.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()

	var l logs
	r := open(t, Options{Dir: dir, Log: l.logger()})
	wantKey(t, r)
	<-old.Done()
	contains(t, l.String(), "asked the redis-server of an earlier rollcall to end")
}

func TestManaged_SecondInstanceIsRefused(t *testing.T) {
	dir := t.TempDir()
	r := open(t, Options{Dir: dir})
	_, err := Open(deadline(t), Options{Dir: dir})
	if !errors.Is(err, ErrInUse) {
		t.Fatalf("second Open: %v, want ErrInUse", err)
	}
	contains(t, err.Error(), dir, "another rollcall")
	if err := r.Commit.Ping(deadline(t)).Err(); err != nil {
		t.Fatalf("the first after the second's attempt: %v", err)
	}
}

func TestManaged_DamagedFiles(t *testing.T) {
	for name, c := range map[string]struct {
		file  string
		harm  func([]byte) []byte
		words []string
		fix   bool
	}{
		"flipped byte": {"appendonly.aof.1.incr.aof", func(b []byte) []byte { b[bytes.LastIndexByte(b, '*')] = 'X'; return b },
			[]string{"appendonly.aof.1.incr.aof", "redis-check-aof --fix"}, true},
		"broken base": {"appendonly.aof.1.base.rdb", func(b []byte) []byte { b[len(b)/2] ^= 0xff; return b }, []string{"backup"}, false},
		"broken list": {"appendonly.aof.manifest", func([]byte) []byte { return []byte("garbage\n") }, []string{"backup"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			ctx := deadline(t)
			r := open(t, Options{Dir: dir})
			for _, key := range []string{"k", "last"} {
				if err := r.Commit.Set(ctx, key, "v", 0).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.Close(ctx); err != nil {
				t.Fatal(err)
			}
			spoil(t, filepath.Join(dir, "appendonlydir", c.file), c.harm)
			_, err := Open(ctx, Options{Dir: dir})
			if !errors.Is(err, ErrUnfit) {
				t.Fatalf("Open: %v, want ErrUnfit", err)
			}
			contains(t, err.Error(), append(c.words, filepath.Join(dir, "appendonlydir"))...)
			if c.fix {
				repair(t, dir)
				wantKey(t, open(t, Options{Dir: dir}))
			}
		})
	}
}

// A child that cannot come back says why, and comes back once the files are mended.
func TestManaged_DamageWhileRunning(t *testing.T) {
	dir := t.TempDir()
	ctx := deadline(t)
	r := open(t, Options{Dir: dir})
	for _, key := range []string{"k", "last"} {
		if err := r.Commit.Set(ctx, key, "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "appendonlydir", "appendonly.aof.1.incr.aof")
	realtest.Eventually(t, patience, func() error { // Redis answers before it has written, while the disk still syncs
		b, err := os.ReadFile(file)
		if err == nil && !bytes.HasSuffix(b, []byte("last\r\n$1\r\nv\r\n")) {
			err = fmt.Errorf("%s ends with %q", file, b[max(0, len(b)-40):])
		}
		return err
	})
	spoil(t, file, func(b []byte) []byte {
		b[bytes.LastIndexByte(b, '*')] = 'X'
		return b
	})
	if err := r.child.current().Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	realtest.Eventually(t, patience, func() error {
		if err := r.CheckServer(ctx); !errors.Is(err, ErrUnfit) {
			return fmt.Errorf("CheckServer: %v, want the damaged file", err)
		}
		return nil
	})
	contains(t, r.CheckServer(ctx).Error(), "redis-check-aof --fix")
	repair(t, dir)
	realtest.Eventually(t, patience, func() error { return r.CheckServer(ctx) })
	wantKey(t, r)
}

func spoil(t *testing.T, path string, harm func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, harm(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

// repair does what the error tells the operator to do.
func repair(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.Command("redis-check-aof", "--fix", filepath.Join(dir, "appendonlydir", "appendonly.aof.manifest"))
	cmd.Stdin = strings.NewReader("y\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("redis-check-aof: %v\n%s", err, out)
	}
}

func TestManaged_MissingBinary(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Open(deadline(t), Options{Dir: t.TempDir()})
	if !errors.Is(err, server.ErrNoBinary) {
		t.Fatalf("Open: %v, want ErrNoBinary", err)
	}
	contains(t, err.Error(), "apt install redis-server", "brew install redis", "redis.url")
}

func TestManaged_LongFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 25))
	r := open(t, Options{Dir: dir})
	if err := r.Commit.Set(deadline(t), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	run := filepath.Dir(r.child.sock)
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	if strings.HasPrefix(run, dir) {
		t.Fatalf("socket in %s, want a short folder", run)
	}
	if err := r.Close(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(run); !os.IsNotExist(err) {
		t.Errorf("%s is left behind: %v", run, err)
	}
	wantKey(t, open(t, Options{Dir: dir}))
}

func TestPrivate_RefusesWhatIsNotAFolder(t *testing.T) {
	link := filepath.Join(t.TempDir(), "run")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	if err := private(link); err == nil {
		t.Fatal("a symbolic link is taken for a private folder")
	}
}

func TestManaged_CloseKillsAChildThatHangs(t *testing.T) {
	r := open(t, Options{Dir: t.TempDir()})
	pid := r.child.current().Pid()
	if err := r.child.current().Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := r.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close: %v, want a deadline", err)
	}
	if err := gone(pid); err != nil {
		t.Error(err)
	}
}

func TestLineLog(t *testing.T) {
	var l logs
	lines := &lineLog{log: l.logger()}
	write := func(s string) {
		t.Helper()
		if n, err := lines.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatal(n, err)
		}
	}
	write("12:M 01 Dec 2026 02:34:05.774 # at ")
	write("start\n\n12:M 01 Dec 2026 02:34:05.774 * notice\n")
	lines.serving.Store(true)
	write("12:M 01 Dec 2026 02:34:05.774 # serving\n" + strings.Repeat("x", 3*longestLine) + "\n")
	contains(t, l.String(), `level=DEBUG msg="redis-server: at start"`, `level=DEBUG msg="redis-server: notice"`, `level=WARN msg="redis-server: serving"`)
	for range 3 * keptLines {
		write("more\n")
	}
	if tail := lines.tail(); len(tail) != keptLines || len(lines.part) != 0 {
		t.Errorf("keeps %d lines and %d bytes, want %d and 0", len(tail), len(lines.part), keptLines)
	}
	if longest := strings.Repeat("x", longestLine); !strings.Contains(l.String(), longest) || strings.Contains(l.String(), longest+"x") {
		t.Errorf("a long line is not cut at %d bytes", longestLine)
	}
}
