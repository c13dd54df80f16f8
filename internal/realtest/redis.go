package realtest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/redisx/server"
)

// patience bounds every wait for a server; reached only when something is broken.
const patience = 20 * time.Second

// RedisServer is one private redis-server on the loopback device, with an AOF that is fsynced every second, no snapshots and no
// eviction. It dies at the end of the test, and with the test process. Its methods may be called from any goroutine, except that
// those which change whether it runs (Kill, Stop, Start, CutAOF) must not run at the same time.
type RedisServer struct {
	Addr string // host:port
	Sock string // unix socket
	Dir  string // its data

	t       testing.TB
	binary  string
	port    int
	config  string // lines of the caller
	client  func() *redis.Client
	mu      sync.Mutex
	log     bytes.Buffer // of the current run
	process *server.Process
	follows string // "host port" of its master, or ""
}

// Redis starts a server and waits until it answers. Each of config is a line such as "maxmemory 2mb"; it overrides the default.
func Redis(t testing.TB, config ...string) *RedisServer {
	t.Helper()
	binary, err := server.Find()
	if err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir: its paths may be longer than a socket's address can be.
	dir, err := os.MkdirTemp("", "rc-redis-")
	if err != nil {
		t.Fatal(err)
	}
	s := &RedisServer{
		Dir: dir, Sock: filepath.Join(dir, "redis.sock"),
		t: t, binary: binary, config: strings.Join(config, "\n"),
	}
	s.client = sync.OnceValue(func() *redis.Client {
		c := redis.NewClient(&redis.Options{
			Addr: s.Addr, Protocol: 2, DisableIdentity: true, DialerRetries: 1,
			DialTimeout: 2 * time.Second, ReadTimeout: 10 * time.Second, ContextTimeoutEnabled: true,
		})
		t.Cleanup(func() { _ = c.Close() })
		return c
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("redis-server %s:\n%s", s.Addr, s.lastLines())
		}
		if s.process != nil {
			s.process.Kill()
		}
		_ = os.RemoveAll(dir)
	})
	for range 20 { // another process may take the port between the look and the start
		s.port = freePort(t)
		s.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
		s.launch()
		if err = s.ready(); err == nil {
			return s
		}
		s.process.Kill()
		if !strings.Contains(s.lastLines(), "bind") {
			break
		}
	}
	t.Fatalf("redis-server: %v\n%s", err, s.lastLines())
	return nil
}

// freePort looks below the ports that systems give to outgoing connections, so that nobody gets ours while the server is down.
// The port 10,000 above, a cluster node's second, is below them too.
func freePort(t testing.TB) int {
	t.Helper()
	for range 200 {
		port := 12000 + rand.IntN(10000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no free port on 127.0.0.1 in 12000–21999")
	return 0
}

// Client returns the server's own client, closed with the test; the same at every call. It retries as go-redis does by default.
func (s *RedisServer) Client() *redis.Client { return s.client() }

// Pid is the process id of the running server.
func (s *RedisServer) Pid() int { return s.process.Pid() }

// Kill ends the server at once (SIGKILL), also while it is paused.
func (s *RedisServer) Kill() { s.process.Kill() }

// Stop lets the server flush and end (SIGTERM).
func (s *RedisServer) Stop() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.process.Stop(ctx); err != nil {
		s.t.Fatalf("stop redis-server: %v", err)
	}
}

// Start runs the server again on the same data, port and socket, and waits until it answers. A replica follows its master again.
func (s *RedisServer) Start() {
	s.t.Helper()
	select {
	case <-s.process.Done():
	default:
		s.t.Fatal("Start: the server runs; Stop or Kill it first")
	}
	s.launch()
	s.WaitReady()
}

// Pause freezes the server (SIGSTOP): connections stay open, nothing answers.
func (s *RedisServer) Pause() { s.signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *RedisServer) Resume() { s.signal(syscall.SIGCONT) }

// WaitReady waits until the server has loaded its data and answers; a server that has ended fails the test.
func (s *RedisServer) WaitReady() {
	s.t.Helper()
	if err := s.ready(); err != nil {
		s.t.Fatalf("redis-server: %v\n%s", err, s.lastLines())
	}
}

// CutAOF drops the last n bytes of what the stopped server has written, as a power loss does with the second that was not yet
// fsynced. It returns how many were there to be dropped: only the newest incremental file is cut, never a rewritten base.
func (s *RedisServer) CutAOF(n int64) int64 {
	s.t.Helper()
	select {
	case <-s.process.Done():
	default:
		s.t.Fatal("CutAOF: the server runs; Kill it first")
	}
	path, err := newestAOF(s.Dir)
	if err != nil {
		s.t.Fatalf("CutAOF: %v", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		s.t.Fatalf("CutAOF: %v", err)
	}
	n = min(n, info.Size())
	if err := os.Truncate(path, info.Size()-n); err != nil {
		s.t.Fatalf("CutAOF: %v", err)
	}
	return n
}

// newestAOF finds the file a server appends to: appendonlydir/appendonly.aof.N.incr.aof, before 7.0 appendonly.aof.
func newestAOF(dir string) (string, error) {
	paths, _ := filepath.Glob(filepath.Join(dir, "appendonlydir", "appendonly.aof.*.incr.aof"))
	if len(paths) == 0 {
		path := filepath.Join(dir, "appendonly.aof")
		_, err := os.Stat(path)
		return path, err
	}
	number := func(path string) int {
		n, _ := strconv.Atoi(strings.Split(filepath.Base(path), ".")[2])
		return n
	}
	return slices.MaxFunc(paths, func(a, b string) int { return cmp.Compare(number(a), number(b)) }), nil
}

// ReplicaOf makes the server follow master and waits until both hold the same.
func (s *RedisServer) ReplicaOf(master *RedisServer) {
	s.t.Helper()
	s.follow("127.0.0.1", strconv.Itoa(master.port))
	s.WaitInSync(master)
}

// WaitInSync waits until the replica has everything that master had when it was called.
func (s *RedisServer) WaitInSync(master *RedisServer) {
	s.t.Helper()
	want, err := strconv.ParseInt(master.Info("replication", "master_repl_offset"), 10, 64)
	if err != nil {
		s.t.Fatalf("master_repl_offset: %v", err)
	}
	Eventually(s.t, patience, func() error {
		link, got := s.Info("replication", "master_link_status"), s.Info("replication", "slave_repl_offset")
		if n, err := strconv.ParseInt(got, 10, 64); link != "up" || err != nil || n < want {
			return fmt.Errorf("replica %s: link %s, offset %s, want at least %d", s.Addr, link, got, want)
		}
		return nil
	})
}

// Detach leaves the server a replica, readable and refusing writes, that hears nothing from its master any more: it lags by
// whatever the master takes from now on.
func (s *RedisServer) Detach() {
	s.t.Helper()
	s.follow("127.0.0.1", "1")
}

// Promote makes a replica a master with the data it has.
func (s *RedisServer) Promote() {
	s.t.Helper()
	s.follow("", "")
}

func (s *RedisServer) follow(host, port string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s.mu.Lock()
	s.follows = strings.TrimSpace(host + " " + port)
	s.mu.Unlock()
	if host == "" {
		host, port = "NO", "ONE"
	}
	if err := s.Client().Do(ctx, "REPLICAOF", host, port).Err(); err != nil {
		s.t.Fatalf("REPLICAOF %s %s: %v", host, port, err)
	}
}

// Info returns one field of one section of INFO, or "".
func (s *RedisServer) Info(section, field string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	text, err := s.Client().Info(ctx, section).Result()
	if err != nil {
		s.t.Fatalf("INFO %s: %v", section, err)
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), field+":"); ok {
			return value
		}
	}
	return ""
}

func (s *RedisServer) launch() {
	s.t.Helper()
	var config strings.Builder
	fmt.Fprintf(&config, "bind 127.0.0.1\nport %d\nunixsocket %s\nunixsocketperm 700\ndir %s\n", s.port, server.Quote(s.Sock), server.Quote(s.Dir))
	config.WriteString("appendonly yes\nappendfsync everysec\nsave \"\"\nmaxmemory-policy noeviction\nrepl-diskless-sync-delay 0\n")
	s.mu.Lock()
	if s.follows != "" {
		config.WriteString("replicaof " + s.follows + "\n")
	}
	s.log.Reset()
	s.mu.Unlock()
	config.WriteString(s.config + "\n")
	process, err := server.Start(s.binary, []string{"-"}, config.String(), logOf{s})
	if err != nil {
		s.t.Fatal(err)
	}
	s.process = process
}

// ready asks on the socket, which the server opens after its port: on the port another server might answer.
func (s *RedisServer) ready() error { return ready(s.process, "unix", s.Sock) }

func ready(process *server.Process, network, addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		err := server.Ping(ctx, network, addr)
		select {
		case <-process.Done():
			return fmt.Errorf("ended: %v", process.Err())
		default:
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("no answer within %v: %w", patience, err)
		}
		time.Sleep(wait)
	}
}

func (s *RedisServer) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.process.Signal(sig); err != nil {
		s.t.Fatalf("%v: %v", sig, err)
	}
}

// logOf keeps the start of a run's log, up to 256 KiB, for the message of a failed test.
type logOf struct{ s *RedisServer }

func (l logOf) Write(p []byte) (int, error) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.s.log.Len() < 256<<10 {
		l.s.log.Write(p)
	}
	return len(p), nil
}

func (s *RedisServer) lastLines() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.log.String()
	return text[max(0, len(text)-4096):]
}
