package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/realtest"
)

// Forty events are answered 2xx, then the server is told to stop: none may die with it. Once as it is, once with Redis hanging.
func TestSH01_AcknowledgedEventsSurviveAStop(t *testing.T) {
	const forty = 40
	send := func(s *server) {
		for i := range forty {
			s.accepted("", fmt.Sprintf(`{"event":"deploy","user":"u%d"}`, i), 1)
		}
	}
	t.Run("clean", func(t *testing.T) {
		dir := t.TempDir()
		s := start(t, dir)
		send(s)
		s.stop()
		start(t, dir).counted("deploy", forty, forty)
	})
	t.Run("Redis hangs", func(t *testing.T) {
		dir, redis := t.TempDir(), realtest.Redis(t)
		url := "--redis.url=redis://" + redis.Addr
		s := start(t, dir, url)
		redis.Pause()
		send(s)
		s.stop() // what Redis lacks is in the journal
		redis.Resume()
		start(t, dir, url).counted("deploy", forty, forty)
	})
	t.Run("not drained", func(t *testing.T) {
		dir := t.TempDir()
		s := start(t, dir, "--shutdown.grace=2s")
		pid := s.redisPID()
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil { // the managed Redis can't write what it has
			t.Fatal(err)
		}
		send(s)
		s.signal(syscall.SIGTERM)
		if code := s.wait(); code <= 0 || !strings.Contains(s.stderr.String(), "not drained") {
			t.Errorf("exit code %d; want another than 0, and \"not drained\" in the log", code)
		}
		start(t, dir).counted("deploy", forty, forty)
	})
}

// One client holds half a request for longer than the whole budget. The events answered before are stored while it holds on, and it is
// cut in time.
func TestSH02_ASlowClientDoesNotHoldUpTheFlush(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir, "--shutdown.grace=5s", "--shutdown.delay=2s")
	slow, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	fmt.Fprintf(slow, "POST /v1/events?key=%s HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{\"event\":", s.key(writeName))
	for i := range 10 {
		s.accepted("", fmt.Sprintf(`{"event":"flush","user":"u%d"}`, i), 1)
	}
	s.signal(syscall.SIGTERM)
	until(t, "readiness off while requests are still taken", func() bool {
		res, err := http.Get(s.url + "/readyz")
		if err != nil {
			t.Fatalf("connections ended before readiness: %v", err)
		}
		res.Body.Close()
		return res.StatusCode == http.StatusServiceUnavailable
	})
	s.counted("flush", 10, 10)
	if err := slow.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the slow client was cut before the events were stored: %v", err)
	}
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d; want 0: nothing that was answered is lost", code)
	}
	start(t, dir).counted("flush", 10, 10)
}
