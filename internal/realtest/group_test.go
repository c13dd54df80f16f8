package realtest

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestCluster(t *testing.T) {
	nodes := Cluster(t, 3)
	ctx := context.Background()
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes[1].Addr}})
	t.Cleanup(func() { _ = c.Close() })
	for i := range 100 {
		if err := c.Set(ctx, fmt.Sprint("k", i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var sum int64
	for _, s := range nodes {
		n := s.Client().DBSize(ctx).Val()
		if n == 0 {
			t.Errorf("%s holds no key", s.Addr)
		}
		sum += n
	}
	if sum != 100 {
		t.Errorf("the nodes hold %d keys, want 100", sum)
	}
}

func TestSentinel(t *testing.T) {
	master, replica := Redis(t), Redis(t)
	replica.ReplicaOf(master)
	addr := Sentinel(t, "main", master, replica)
	c := redis.NewSentinelClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = c.Close() })
	master.Kill()
	Eventually(t, patience, func() error {
		got, err := c.GetMasterAddrByName(context.Background(), "main").Result()
		if err == nil && got[1] != fmt.Sprint(replica.port) {
			err = fmt.Errorf("master is %v, want port %d", got, replica.port)
		}
		return err
	})
}
