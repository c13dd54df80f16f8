package redisx

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

const patience = 20 * time.Second

// TestMain lets the test binary also be a rollcall that is there to be killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("REDISX_TEST_VICTIM"); dir != "" {
		victim(dir)
		return
	}
	LogClient(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// victim opens a managed Redis, writes, prints the child's process id and waits to be killed.
func victim(dir string) {
	ctx := context.Background()
	r, err := Open(ctx, Options{Dir: dir})
	if err == nil {
		err = r.Commit.Set(ctx, "k", "v", 0).Err()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(r.child.current().Pid())
	select {}
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// open opens a Redis that is closed with the test.
func open(t *testing.T, o Options) *Redis {
	t.Helper()
	r, err := Open(deadline(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	return r
}

// logs is a slog.Logger's output to look into.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logs) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func contains(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in: %s", w, text)
		}
	}
}
