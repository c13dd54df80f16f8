package realtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/redisx/server"
)

// Cluster starts n masters (3 or more) that share the slots evenly, without replicas.
func Cluster(t testing.TB, n int, config ...string) []*RedisServer {
	t.Helper()
	ctx := context.Background()
	nodes := make([]*RedisServer, n)
	do := func(s *RedisServer, args ...any) {
		t.Helper()
		if err := s.Client().Do(ctx, args...).Err(); err != nil {
			t.Fatalf("%s: %v: %v", s.Addr, args[:2], err)
		}
	}
	for i := range nodes {
		nodes[i] = Redis(t, append([]string{"cluster-enabled yes", "cluster-config-file nodes.conf", "cluster-node-timeout 2000"}, config...)...)
		slots := []any{"CLUSTER", "ADDSLOTS"}
		for slot := i * 16384 / n; slot < (i+1)*16384/n; slot++ {
			slots = append(slots, slot)
		}
		do(nodes[i], slots...)
		do(nodes[i], "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		do(nodes[i], "CLUSTER", "MEET", "127.0.0.1", nodes[0].port)
	}
	for _, s := range nodes {
		Eventually(t, patience, func() error {
			info, err := s.Client().ClusterInfo(ctx).Result()
			for _, want := range []string{"cluster_state:ok", fmt.Sprint("cluster_size:", n), "cluster_slots_assigned:16384"} {
				if err == nil && !strings.Contains(info, want+"\r\n") {
					err = fmt.Errorf("%s: no %s in\n%s", s.Addr, want, info)
				}
			}
			return err
		})
	}
	return nodes
}

// Sentinel starts one sentinel that alone decides over master, and returns its address when it knows the replicas, which must
// follow already. It takes a master for dead after 500 ms.
func Sentinel(t testing.TB, name string, master *RedisServer, replicas ...*RedisServer) string {
	t.Helper()
	dir := t.TempDir()
	port := freePort(t)
	config := fmt.Sprintf("bind 127.0.0.1\nport %d\ndir %s\nsentinel monitor %s 127.0.0.1 %d 1\nsentinel down-after-milliseconds %s 500\n"+
		"sentinel failover-timeout %s 3000\n", port, server.Quote(dir), name, master.port, name, name)
	path := filepath.Join(dir, "sentinel.conf") // the sentinel keeps its state in this file
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &RedisServer{t: t}
	process, err := server.Start(master.binary, []string{path, "--sentinel"}, "", logOf{s})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(process.Kill)
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if err := ready(process, "tcp", addr); err != nil {
		t.Fatalf("sentinel: %v\n%s", err, s.lastLines())
	}
	c := redis.NewSentinelClient(&redis.Options{Addr: addr})
	defer func() { _ = c.Close() }()
	Eventually(t, patience, func() error {
		known, err := c.Replicas(context.Background(), name).Result()
		if err == nil && len(known) != len(replicas) {
			err = fmt.Errorf("the sentinel knows %d of %d replicas", len(known), len(replicas))
		}
		return err
	})
	return addr
}
