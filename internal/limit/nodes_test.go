package limit

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/realtest"
)

// Many at once, on a server that doesn't know the script: no more pass than may.
func TestWindows_Concurrent(t *testing.T) {
	c := realtest.Redis(t).Client()
	r := newRig(t, c)
	var passed [5]atomic.Int64
	var wg sync.WaitGroup
	for node := range 8 {
		wg.Go(func() {
			for i := range 40 {
				if node == 0 && i%8 == 0 {
					c.ScriptFlush(context.Background())
				}
				var calls []Call
				for name := range passed {
					calls = append(calls, minute(strconv.Itoa(name), 100))
				}
				states, err := r.Take(context.Background(), calls)
				if err != nil {
					t.Error(err)
					return
				}
				for name, s := range states {
					if s.OK {
						passed[name].Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	for name := range passed {
		if n := passed[name].Load(); n != 100 {
			t.Errorf("name %d: %d passed, want 100", name, n)
		}
	}
}

func TestWindows_Cluster(t *testing.T) {
	nodes := realtest.Cluster(t, 3)
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.Addr)
	}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Protocol: 2, DisableIdentity: true, ContextTimeoutEnabled: true, MaxRedirects: -1})
	t.Cleanup(func() { _ = c.Close() })
	realtest.Eventually(t, 10*time.Second, func() error { return c.Ping(context.Background()).Err() })
	r := newRig(t, c)
	var calls []Call
	for i := range 100 {
		calls = append(calls, minute("u"+strconv.Itoa(i), 2))
	}
	for round, want := range []int{1, 0, -1} {
		states, err := r.Take(context.Background(), calls)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range states {
			if s.OK != (want >= 0) || s.Remaining != max(0, want) {
				t.Errorf("round %d, call %d: %+v", round, i, s)
			}
		}
	}
	keys := 0
	for _, n := range nodes {
		all, err := n.Client().Keys(context.Background(), "*").Result()
		if err != nil || len(all) == 0 {
			t.Errorf("%s holds %d keys, %v; want some on each node", n.Addr, len(all), err)
		}
		for _, key := range all {
			if ttl := n.Client().PTTL(context.Background(), key).Val(); ttl <= 0 {
				t.Errorf("%s has no TTL", key)
			}
		}
		keys += len(all)
	}
	if keys != 100 {
		t.Errorf("%d keys, want 100", keys)
	}
	nodes[1].Kill()
	if _, err := r.Take(context.Background(), calls); err == nil || apperr.As(err).Code != "limit_unavailable" {
		t.Errorf("with a node down: %v, want limit_unavailable", err)
	}
}
