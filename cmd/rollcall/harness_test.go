package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// binary is rollcall as a user builds it.
var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "rollcall-test")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "rollcall")
		if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building rollcall: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// cleanEnv is the environment without options of rollcall.
func cleanEnv() (env []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "ROLLCALL_") {
			env = append(env, v)
		}
	}
	return env
}

const patience = 60 * time.Second // a loaded machine is slow; a working one is not

// until polls a state.
func until(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !reached(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not reached within %s: %s", patience, what)
		}
	}
}

// output keeps what a process writes.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// server is a running rollcall.
type server struct {
	t      *testing.T
	dir    string
	url    string
	cmd    *exec.Cmd
	stdout output
	stderr output
	exited chan error

	writeKey, readKey string // those of the data folder when empty
}

// start serves dir on a free port and waits until it is ready.
func start(t *testing.T, dir string, args ...string) *server {
	t.Helper()
	s := launch(t, dir, args...)
	until(t, "ready", func() bool {
		select {
		case err := <-s.exited:
			t.Fatalf("serve ended: %v\n%s", err, s.stderr.String())
		default:
		}
		url, err := os.ReadFile(filepath.Join(dir, urlName))
		if err != nil {
			return false
		}
		s.url = strings.TrimSpace(string(url))
		res, err := http.Get(s.url + "/readyz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	return s
}

func launch(t *testing.T, dir string, args ...string) *server {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, urlName)); err != nil { // left by a kill
		t.Fatal(err)
	}
	s := &server{t: t, dir: dir, exited: make(chan error, 1)}
	s.cmd = exec.Command(binary, append([]string{"serve", "--data", dir, "--listen", "127.0.0.1:0"}, args...)...)
	s.cmd.Env = cleanEnv()
	s.cmd.Dir = dir
	s.cmd.Stdout, s.cmd.Stderr = &s.stdout, &s.stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.exited <- s.cmd.Wait() }()
	t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			s.signal(syscall.SIGKILL)
		}
		if t.Failed() {
			t.Logf("log of serve:\n%s", s.stderr.String())
		}
	})
	return s
}

func (s *server) signal(sig os.Signal) {
	// It may have ended by itself; the test then sees its exit.
	_ = s.cmd.Process.Signal(sig)
}

// wait returns the exit code: -1 after a kill.
func (s *server) wait() int {
	s.t.Helper()
	select {
	case <-s.exited:
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		s.t.Fatal("serve did not end")
		return 0
	}
}

func (s *server) kill() {
	s.t.Helper()
	s.signal(syscall.SIGKILL)
	s.wait()
}

func (s *server) stop() {
	s.t.Helper()
	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != 0 {
		s.t.Fatalf("exit code %d after SIGTERM; want 0", code)
	}
}

func or(given string, otherwise func() string) string {
	if given != "" {
		return given
	}
	return otherwise()
}

func (s *server) key(name string) string {
	s.t.Helper()
	key, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(key))
}

// request is one request with headers; its body is read.
func (s *server) request(method, path, body string, header ...string) (*http.Response, string) {
	s.t.Helper()
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i+1] == "" {
			r.Header[header[i]] = nil // for User-Agent: none at all
		} else {
			r.Header.Add(header[i], header[i+1])
		}
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res, string(text)
}

// post sends a body with the write key and wants an answer of the form {"received":…}.
func (s *server) post(query, body string, header ...string) (int, answer) {
	s.t.Helper()
	key := or(s.writeKey, func() string { return s.key(writeName) })
	res, text := s.request("POST", "/v1/events"+query, body, append([]string{"Authorization", "Bearer " + key}, header...)...)
	var a answer
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		s.t.Fatalf("answer %d %s: %v", res.StatusCode, text, err)
	}
	return res.StatusCode, a
}

// accepted sends events of which every one must be accepted.
func (s *server) accepted(query, body string, n int) {
	s.t.Helper()
	if status, a := s.post(query, body); status != 202 || a.Accepted != n || a.Received != n {
		s.t.Fatalf("answer %d %+v; want 202 with %d accepted", status, a, n)
	}
}

func (s *server) get(path string) string {
	s.t.Helper()
	res, err := http.Get(s.url + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(body)
}

// counts asks for an event in the last seven days. It is not ok while Redis is away.
func (s *server) counts(event string) (pv, uv int64, ok bool) {
	s.t.Helper()
	res, err := http.Get(s.url + "/v1/counts?event=" + event + "&key=" + or(s.readKey, func() string { return s.key(readName) }))
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusServiceUnavailable {
		return 0, 0, false
	}
	var c series
	if err := json.NewDecoder(res.Body).Decode(&c); err != nil || res.StatusCode != 200 || len(c.Rows) != 7 {
		s.t.Fatalf("counts: %d %+v %v", res.StatusCode, c, err)
	}
	return c.Total.PV, c.Total.UV.Value, true
}

// counted waits until an event has been counted so often.
func (s *server) counted(event string, pv, uv int64) {
	s.t.Helper()
	var p, u int64
	until(s.t, fmt.Sprintf("%s counted %d times", event, pv), func() (ok bool) {
		p, u, ok = s.counts(event)
		return ok && p >= pv
	})
	if p != pv || u != uv {
		s.t.Errorf("%s: PV %d, UV %d; want %d and %d", event, p, u, pv, uv)
	}
}

// redis is a client of the managed child.
func (s *server) redis() *redis.Client {
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: filepath.Join(s.dir, "redis", "run", "redis.sock")})
	s.t.Cleanup(func() { c.Close() })
	return c
}

// cli runs a subcommand against a data folder.
func cli(t *testing.T, dir string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(binary, append(args, "--data", dir)...)
	cmd.Env, cmd.Dir = cleanEnv(), dir
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func zip(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
