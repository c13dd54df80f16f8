package limit

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/realtest"
)

// asked counts the pipelines that a client is given.
type asked struct{ n atomic.Int64 }

func (a *asked) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}
func (a *asked) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (a *asked) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		a.n.Add(1)
		return next(ctx, cmds)
	}
}

// client repeats nothing, as the one of commits, and would wait for an answer for ever.
func client(t *testing.T, s *realtest.RedisServer) (*redis.Client, *asked) {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: s.Addr, Protocol: 2, DisableIdentity: true, DialerRetries: 1, MaxRetries: -1, DialTimeout: time.Hour, ReadTimeout: -1, WriteTimeout: -1, PoolTimeout: time.Hour, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = c.Close() })
	a := &asked{}
	c.AddHook(a)
	return c, a
}

// pause lets the server hang, and the windows wait for it no longer than they really do.
func (r *rig) pause(s *realtest.RedisServer) {
	s.Pause()
	r.patience = patience
}

func (r *rig) resume(s *realtest.RedisServer) {
	s.Resume()
	r.patience = 20 * time.Second
}

// away asks once and wants limit_unavailable.
func (r *rig) away() error {
	r.t.Helper()
	s, err := r.Take(context.Background(), []Call{minute("a", 5)})
	if e := apperr.As(err); e.Kind != apperr.Unavailable || e.Code != "limit_unavailable" || e.RetryAfter <= 0 || s != nil {
		r.t.Errorf("%v, %v; want limit_unavailable", s, err)
	}
	return err
}

// back waits until a call passes, a second of the clock after the other.
func (r *rig) back() {
	r.t.Helper()
	realtest.Eventually(r.t, 10*time.Second, func() error {
		r.clock.Add(hold)
		_, err := r.Take(context.Background(), []Call{minute("b", 5)})
		return err
	})
	if err := r.Away(); err != nil {
		r.t.Errorf("Away: %v after a call that was answered", err)
	}
}

func TestWindows_RedisHangs(t *testing.T) {
	s := realtest.Redis(t)
	c, asked := client(t, s)
	r := newRig(t, c)
	r.take(0, minute("a", 5))
	r.pause(s)
	if err := r.away(); !errors.Is(err, os.ErrDeadlineExceeded) { // neither the client nor the context has one
		t.Errorf("%v, want a deadline", err)
	}
	if r.Away() == nil {
		t.Error("Away is nil after a failure")
	}
	many := func(want int64) {
		t.Helper()
		before := asked.n.Load()
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() { _ = r.away() })
		}
		wg.Wait()
		if n := asked.n.Load() - before; n != want {
			t.Errorf("200 callers asked the store %d times, want %d", n, want)
		}
	}
	many(0)
	r.clock.Add(hold - time.Millisecond)
	many(0)
	r.clock.Add(time.Millisecond)
	many(1) // the probe, which fails
	r.clock.Set(start)
	many(1) // a clock that was set back
	r.resume(s)
	r.back()
	if s := r.take(time.Second, minute("a", 5)); !s.OK {
		t.Errorf("%+v after the store came back", s)
	}
}

func TestWindows_RedisDown(t *testing.T) {
	s := realtest.Redis(t, "appendfsync always")
	c, asked := client(t, s)
	r := newRig(t, c)
	for range 4 {
		r.take(0, minute("a", 5))
	}
	s.Kill()
	_ = r.away()
	before := asked.n.Load()
	_ = r.away()
	if asked.n.Load() != before {
		t.Error("a store that is down was asked again at once")
	}
	s.Start() // it has forgotten the script, not the calls
	r.back()
	if s := r.take(time.Second, minute("a", 5)); !s.OK || s.Remaining != 0 {
		t.Errorf("%+v, want the fifth of five", s)
	}
}

// A caller that gives up says nothing about the store.
func TestWindows_CallerGivesUp(t *testing.T) {
	s := realtest.Redis(t)
	c, asked := client(t, s)
	r := newRig(t, c)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.Take(gone, []Call{minute("a", 1)}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
	if r.Away() != nil || !r.take(0, minute("a", 1)).OK {
		t.Error("a caller that gave up stands against the others, or has consumed")
	}
	r.pause(s)
	hurried, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, err := r.Take(hurried, []Call{minute("a", 1)}); !errors.Is(err, context.DeadlineExceeded) || r.Away() != nil {
		t.Errorf("%v, %v; want the caller's own deadline, and nothing more", err, r.Away())
	}
	_ = r.away()
	r.clock.Add(hold)
	if _, err := r.Take(gone, []Call{minute("a", 1)}); !errors.Is(err, context.Canceled) { // as the probe
		t.Errorf("%v, want context.Canceled", err)
	}
	before := asked.n.Load()
	_ = r.away()
	if asked.n.Load() != before+1 {
		t.Error("after a probe that gave up nobody else probes")
	}
	r.resume(s)
	r.back()
}

// What a server refuses is no reason to ask it nothing more.
func TestWindows_RedisRefuses(t *testing.T) {
	s := realtest.Redis(t)
	c, _ := client(t, s)
	r := newRig(t, c)
	ctx := context.Background()
	f := func(want string) {
		t.Helper()
		if err := r.away(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if err := r.Away(); err != nil {
			t.Errorf("Away: %v", err)
		}
	}
	c.ConfigSet(ctx, "maxmemory", "1")
	f("OOM")
	if n := c.DBSize(ctx).Val(); n != 0 {
		t.Errorf("%d keys after a write that was refused", n)
	}
	c.ConfigSet(ctx, "maxmemory", "0")
	c.Do(ctx, "REPLICAOF", "127.0.0.1", "1")
	f("READONLY")
	c.Do(ctx, "REPLICAOF", "NO", "ONE")
	if !r.take(0, minute("a", 1)).OK {
		t.Error("refused when the server takes writes again")
	}
}

// A list that is none of ours is an error, and stays as it is.
func TestWindows_Damaged(t *testing.T) {
	c, _ := client(t, realtest.Redis(t))
	r := newRig(t, c)
	ctx := context.Background()
	call := minute("a", 5)
	key := windowKey(16, &call)
	now := start.UnixMilli()
	for _, words := range [][]any{{"x"}, {"x", "0"}, {now}, {now, 0, now}, {"x", "0", now, 0}} {
		c.Del(ctx, key)
		c.RPush(ctx, key, words...)
		if err := r.away(); err == nil || !strings.Contains(err.Error(), "DAMAGED") {
			t.Errorf("%v: %v, want DAMAGED", words, err)
		}
		if n := c.LLen(ctx, key).Val(); n != int64(len(words)) {
			t.Errorf("%v: %d elements are left", words, n)
		}
	}
	c.Del(ctx, key)
	c.Set(ctx, key, "x", 0)
	if err := r.away(); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("%v, want WRONGTYPE", err)
	}
	if !r.take(0, minute("other", 1)).OK {
		t.Error("a damaged key stands against others")
	}
}
