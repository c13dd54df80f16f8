package realtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestRedis_KillStartCut(t *testing.T) {
	s := Redis(t)
	ctx := context.Background()
	for i := range 100 {
		if err := s.Client().Set(ctx, fmt.Sprint("k", i), "0123456789", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	size := func() int64 {
		t.Helper()
		var n int64
		Eventually(t, patience, func() (err error) { n, err = s.Client().DBSize(ctx).Result(); return err })
		return n
	}
	s.Kill()
	s.Start()
	if got := size(); got != 100 {
		t.Fatalf("after kill -9: %d keys, want 100", got)
	}
	s.Kill()
	if n := s.CutAOF(300); n != 300 {
		t.Fatalf("CutAOF cut %d bytes, want 300", n)
	}
	s.Start()
	if got := size(); got < 85 || got > 95 {
		t.Fatalf("after a cut of 300 bytes: %d keys, want about 92", got)
	}
	s.Stop()
	s.CutAOF(1 << 40)
	s.Start()
	if got := size(); got != 0 {
		t.Fatalf("after a cut of everything: %d keys, want 0", got)
	}
}

func TestRedis_Pause(t *testing.T) {
	s := Redis(t)
	s.Pause()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := s.Client().Ping(ctx).Err(); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("PING while paused: %v, want a deadline", err)
	}
	s.Resume()
	s.WaitReady()
}

func TestRedis_Failover(t *testing.T) {
	master, replica := Redis(t), Redis(t)
	ctx := context.Background()
	master.Client().Set(ctx, "k", "1", 0)
	replica.ReplicaOf(master)
	get(t, replica.Client(), "k", "1")
	replica.Detach()
	master.Client().Set(ctx, "k", "2", 0)
	if err := replica.Client().Set(ctx, "k", "3", 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "READONLY") {
		t.Fatalf("SET on a detached replica: %v, want READONLY", err)
	}
	replica.Promote()
	get(t, replica.Client(), "k", "1")
	get(t, master.Client(), "k", "2")
	master.ReplicaOf(replica)
	get(t, master.Client(), "k", "1")
	master.Kill()
	master.Start()
	master.WaitInSync(replica)
}

func TestRedis_Config(t *testing.T) {
	s := Redis(t, "appendfsync always", "maxmemory 3mb")
	got := s.Client().ConfigGet(context.Background(), "*").Val()
	for key, want := range map[string]string{"appendfsync": "always", "maxmemory": "3145728", "maxmemory-policy": "noeviction", "appendonly": "yes"} {
		if got[key] != want {
			t.Errorf("%s = %q, want %q", key, got[key], want)
		}
	}
}

func TestShared(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("ROLLCALL_SHARED", dir)
	if got := Shared(t); got != dir {
		t.Fatalf("Shared = %q, want %q", got, dir)
	}
}
