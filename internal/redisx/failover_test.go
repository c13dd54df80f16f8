package redisx

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/realtest"
)

// soon is the promise of RD-01.
const soon = 10 * time.Second

func TestRD01_SameHostName(t *testing.T) {
	a, b := realtest.Redis(t), realtest.Redis(t)
	b.ReplicaOf(a)
	p := realtest.NewProxy(t, a.Addr)
	r := open(t, Options{URL: "redis://" + p.Addr})
	ctx := deadline(t)
	if err := r.Commit.Incr(ctx, "n").Err(); err != nil {
		t.Fatal(err)
	}
	b.WaitInSync(a)
	b.Promote()
	a.ReplicaOf(b)
	p.SetTarget(b.Addr) // connections to the demoted master stay open and answer
	refusals := 0
	realtest.Eventually(t, soon, func() error {
		err := r.Commit.Incr(ctx, "n").Err()
		if err != nil && !IsReadOnly(err) {
			t.Fatalf("INCR on the demoted master: %v, want READONLY", err)
		}
		if err != nil {
			refusals++
		}
		return err
	})
	if refusals == 0 {
		t.Error("the demoted master refused nothing: the test did not reach it")
	}
	if n := b.Client().Get(ctx, "n").Val(); n != "2" {
		t.Errorf("n = %s, want 2", n)
	}
}

// A projector that was refused asks CheckServer before it writes again. All it has are connections to the demoted master.
func TestRD01_CheckServerFindsTheNewMaster(t *testing.T) {
	a, b := realtest.Redis(t), realtest.Redis(t)
	b.ReplicaOf(a)
	p := realtest.NewProxy(t, a.Addr)
	r := open(t, Options{URL: "redis://" + p.Addr})
	ctx := deadline(t)
	const many = 8
	for _, c := range []redis.UniversalClient{r.Commit, r.Read} { // many connections, all idle
		errs := make(chan error, many)
		for range many {
			go func() { errs <- c.BLPop(ctx, 100*time.Millisecond, "none").Err() }()
		}
		for range many {
			if err := <-errs; !errors.Is(err, redis.Nil) {
				t.Fatal(err)
			}
		}
		if n := c.PoolStats().IdleConns; n < many {
			t.Fatalf("%d idle connections, want %d", n, many)
		}
	}
	b.WaitInSync(a)
	b.Promote()
	a.ReplicaOf(b)
	p.SetTarget(b.Addr)
	if err := r.CheckServer(ctx); err == nil || !strings.Contains(err.Error(), "is a replica") {
		t.Fatalf("the check goes over an old connection: %v, want a replica", err)
	}
	if err := r.CheckServer(ctx); err != nil {
		t.Fatal("the check after it:", err)
	}
	for range 2 * many {
		if err := r.Commit.Incr(ctx, "n").Err(); err != nil {
			t.Fatal("INCR after the check:", err)
		}
	}
	if n, err := r.Read.Get(ctx, "n").Int(); err != nil || n != 2*many {
		t.Errorf("Read: n = %d, %v; want %d", n, err, 2*many)
	}
	if n := b.Client().Exists(ctx, unusedKey).Val(); n != 0 {
		t.Error("the check has left a key")
	}
}

func TestRD01_Sentinel(t *testing.T) {
	master, replica := realtest.Redis(t), realtest.Redis(t)
	replica.ReplicaOf(master)
	sentinel := realtest.Sentinel(t, "main", master, replica)
	r := open(t, Options{URL: "redis+sentinel://" + sentinel + "/main?read_replicas=true"})
	ctx := deadline(t)
	if i := r.Info(); i.Mode != "sentinel" || i.Address != sentinel+"/main" {
		t.Errorf("Info = %+v", i)
	}
	acknowledged := 0
	for range 10 {
		if err := r.Commit.Incr(ctx, "n").Err(); err != nil {
			t.Fatal(err)
		}
		acknowledged++
	}
	replica.WaitInSync(master)
	if got, err := r.Read.Get(ctx, "n").Result(); got != "10" || err != nil {
		t.Errorf("Read: n = %s, %v; want 10", got, err)
	}
	master.Kill()
	began, unknown := time.Now(), 0
	realtest.Eventually(t, soon, func() error {
		err := r.Commit.Incr(ctx, "n").Err()
		if IsUnknown(err) {
			unknown++
		}
		if err == nil {
			acknowledged++
		}
		return err
	})
	t.Logf("writes again %v after kill -9 of the master, %d without a reply", time.Since(began).Round(time.Millisecond), unknown)
	n, err := replica.Client().Get(ctx, "n").Int()
	if err != nil || n < acknowledged || n > acknowledged+unknown {
		t.Errorf("n = %d, %v; want %d to %d", n, err, acknowledged, acknowledged+unknown)
	}
	if err := r.CheckServer(ctx); err != nil {
		t.Error(err)
	}
}

func TestCluster(t *testing.T) {
	nodes := realtest.Cluster(t, 3)
	r := open(t, Options{URL: "redis+cluster://" + nodes[0].Addr + "," + nodes[1].Addr})
	ctx := deadline(t)
	script := redis.NewScript(`return redis.call('INCR', KEYS[1])`)
	for shard := range 16 {
		key := fmt.Sprintf("rc:{%02x}:n", shard)
		if n, err := script.Run(ctx, r.Commit, []string{key}).Int(); n != 1 || err != nil {
			t.Fatalf("%s = %d, %v; want 1", key, n, err)
		}
		if n, err := r.Read.Get(ctx, key).Int(); n != 1 || err != nil {
			t.Fatalf("%s = %d, %v; want 1", key, n, err)
		}
	}
	contains(t, refused(t, "redis://"+nodes[2].Addr), "redis+cluster://")
	nodes[1].Client().ConfigSet(ctx, "maxmemory-policy", "allkeys-random")
	contains(t, refused(t, "redis+cluster://"+nodes[0].Addr), nodes[1].Addr, "allkeys-random")
	single := realtest.Redis(t)
	contains(t, refused(t, "redis+cluster://"+single.Addr), "not a cluster")
}

// A dead master sends no MOVED: the lost connection itself must lead to its successor.
func TestCluster_Failover(t *testing.T) {
	nodes := realtest.Cluster(t, 3)
	ctx := deadline(t)
	replica := realtest.Redis(t, "cluster-enabled yes", "cluster-config-file nodes.conf", "cluster-node-timeout 2000", "cluster-replica-validity-factor 0")
	host, port, _ := strings.Cut(nodes[0].Addr, ":")
	if err := replica.Client().ClusterMeet(ctx, host, port).Err(); err != nil {
		t.Fatal(err)
	}
	id := nodes[0].Client().ClusterMyID(ctx).Val()
	realtest.Eventually(t, patience, func() error { return replica.Client().ClusterReplicate(ctx, id).Err() })
	replica.WaitInSync(nodes[0])
	for _, s := range nodes {
		realtest.Eventually(t, patience, func() error {
			if known := s.Client().ClusterNodes(ctx).Val(); !strings.Contains(known, "slave "+id) {
				return fmt.Errorf("%s does not know the replica:\n%s", s.Addr, known)
			}
			return nil
		})
	}

	r := open(t, Options{URL: "redis+cluster://" + nodes[1].Addr})
	key := ""
	for i := range 1000 { // one that lives on the first node
		if slot, err := nodes[1].Client().ClusterKeySlot(ctx, fmt.Sprint(i)).Result(); err == nil && slot < 16384/3 {
			key = fmt.Sprint(i)
			break
		}
	}
	if err := r.Commit.Incr(ctx, key).Err(); err != nil {
		t.Fatal(err)
	}
	replica.WaitInSync(nodes[0])
	nodes[0].Kill()
	began := time.Now()
	realtest.Eventually(t, soon, func() error { return r.Commit.Incr(ctx, key).Err() })
	t.Logf("writes again %v after kill -9 of the master", time.Since(began).Round(time.Millisecond))
	if n := replica.Client().Get(ctx, key).Val(); n != "2" {
		t.Errorf("n = %s, want 2", n)
	}
}

// The cluster client repeats commands after a lost connection unless it is kept from it.
func TestCluster_CommitIsNotRepeated(t *testing.T) {
	nodes := realtest.Cluster(t, 3)
	ctx := deadline(t)
	proxies := make([]*realtest.Proxy, len(nodes))
	for i, s := range nodes {
		proxies[i] = realtest.NewProxy(t, s.Addr)
		_, port, _ := strings.Cut(proxies[i].Addr, ":")
		if err := s.Client().ConfigSet(ctx, "cluster-announce-port", port).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range nodes {
		realtest.Eventually(t, patience, func() error {
			known := s.Client().ClusterNodes(ctx).Val()
			for _, p := range proxies {
				if !strings.Contains(known, p.Addr) {
					return fmt.Errorf("%s does not know %s:\n%s", s.Addr, p.Addr, known)
				}
			}
			return nil
		})
	}
	r := open(t, Options{URL: "redis+cluster://" + proxies[0].Addr})
	isIncr := func(cmd [][]byte) bool { return strings.EqualFold(string(cmd[0]), "incr") }
	var hooks []*realtest.Hook
	for _, p := range proxies {
		hooks = append(hooks, p.OnNext(isIncr, realtest.DropReply))
	}
	if err := r.Commit.Incr(ctx, "n").Err(); !IsUnknown(err) {
		t.Fatalf("INCR whose reply is dropped: %v, want an unknown outcome", err)
	}
	select {
	case <-hooks[0].Hit():
	case <-hooks[1].Hit():
	case <-hooks[2].Hit():
	}
	if n, err := r.Read.Get(ctx, "n").Int(); n != 1 || err != nil {
		t.Fatalf("n = %d, %v; want 1", n, err)
	}
}

func TestCommit_IsNotRepeated(t *testing.T) {
	s := realtest.Redis(t)
	p := realtest.NewProxy(t, s.Addr)
	r := open(t, Options{URL: "redis://" + p.Addr})
	ctx := deadline(t)
	h := p.OnNext(func(cmd [][]byte) bool { return strings.EqualFold(string(cmd[0]), "incr") }, realtest.DropReply)
	if err := r.Commit.Incr(ctx, "n").Err(); !IsUnknown(err) {
		t.Fatalf("INCR whose reply is dropped: %v, want an unknown outcome", err)
	}
	<-h.Hit()
	if n := s.Client().Get(ctx, "n").Val(); n != "1" {
		t.Fatalf("n = %s, want 1", n)
	}
	// The caller's own deadline counts, and leaves the outcome as open.
	h = p.OnNext(func(cmd [][]byte) bool { return strings.EqualFold(string(cmd[0]), "incr") }, realtest.HoldRequest)
	if err := r.Commit.Incr(ctx, "n").Err(); !IsUnknown(err) {
		t.Fatalf("held INCR: %v, want an unknown outcome", err)
	}
	if _, err := h.Release(); err != nil {
		t.Fatal(err)
	}
	s.Pause()
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	err := r.Commit.Incr(short, "n").Err()
	s.Resume()
	// The socket's deadline may fire an instant before the context's. The client's own is 5 s.
	if took := time.Since(began); !IsUnknown(err) || took >= 5*time.Second {
		t.Fatalf("INCR of a paused server: %v after %v, want the caller's deadline", err, took)
	}
}

// One round trip opens a connection.
func TestHandshake(t *testing.T) {
	s := realtest.Redis(t)
	p := realtest.NewProxy(t, s.Addr)
	var seen []string
	p.OnNext(func(cmd [][]byte) bool { // asked one command at a time; never says yes
		seen = append(seen, strings.ToLower(string(cmd[0])))
		return false
	}, realtest.DropReply)
	commit, read := target{mode: "single", options: optionsOf(p.Addr)}.clients()
	if err := errors.Join(commit.Ping(deadline(t)).Err(), commit.Close(), read.Close()); err != nil {
		t.Fatal(err)
	}
	p.CutAll()
	if got := strings.Join(seen, " "); got != "hello ping" {
		t.Errorf("a new connection sends %q, want hello ping", got)
	}
}
