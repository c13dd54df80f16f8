package redisx

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/realtest"
)

// What may be asked of a replica.
func TestHL04_ReadsOnAReplica(t *testing.T) {
	master, replica := realtest.Redis(t), realtest.Redis(t)
	ctx := deadline(t)
	m, r := master.Client(), replica.Client()
	if err := m.PFAdd(ctx, "{s}uv1", "a", "b").Err(); err != nil {
		t.Fatal(err)
	}
	if err := m.PFAdd(ctx, "{s}uv2", "b", "c").Err(); err != nil {
		t.Fatal(err)
	}
	if err := m.BitField(ctx, "{s}month", "SET", "u2", "#3", 2).Err(); err != nil {
		t.Fatal(err)
	}
	replica.ReplicaOf(master)

	if n, err := r.PFCount(ctx, "{s}uv1", "{s}uv2").Result(); n != 3 || err != nil {
		t.Errorf("PFCOUNT = %d, %v; want 3", n, err)
	}
	if v, err := r.BitFieldRO(ctx, "{s}month", "u2", "#3").Result(); err != nil || len(v) != 1 || v[0] != 2 {
		t.Errorf("BITFIELD_RO = %v, %v; want [2]", v, err)
	}
	if err := r.BitField(ctx, "{s}month", "GET", "u2", "#3").Err(); !IsReadOnly(err) {
		t.Errorf("BITFIELD GET: %v, want READONLY", err)
	}
	if err := r.PFMerge(ctx, "{s}tmp", "{s}uv1").Err(); !IsReadOnly(err) {
		t.Errorf("PFMERGE: %v, want READONLY", err)
	}
	for name, c := range map[string]*redis.Client{"replica": r, "master": m} {
		err := c.EvalRO(ctx, `return redis.call('PFCOUNT', KEYS[1])`, []string{"{s}uv1"}).Err()
		if err == nil || !strings.Contains(err.Error(), "Write commands are not allowed from read-only scripts") {
			t.Errorf("EVAL_RO with PFCOUNT on the %s: %v, want a refusal", name, err)
		}
	}
	write := r.Eval(ctx, `return redis.call('SET', KEYS[1], '')`, []string{"{s}k"}).Err()
	if !IsReadOnly(write) {
		t.Errorf("a script that writes: %v, want READONLY", write)
	}
}

// Out of memory, what a script has done before its first write that needs memory decides about everything after it.
func TestRD04_ScriptsUnderOOM(t *testing.T) {
	s := realtest.Redis(t)
	c := s.Client()
	ctx := deadline(t)
	if err := c.HSet(ctx, "{s}meta", "offset", 7, "epoch", "e").Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	run := func(script string) (any, error) { return c.Eval(ctx, script, []string{"{s}pv", "{s}meta"}).Result() }
	value := func(key string) string { return c.Get(ctx, key).Val() }

	if err := c.Incr(ctx, "{s}pv").Err(); !IsOOM(err) {
		t.Fatalf("INCR: %v, want OOM", err)
	}
	if _, err := run(`return redis.call('INCR', KEYS[1])`); !IsOOM(err) || value("{s}pv") != "" {
		t.Errorf("script A, INCR: %v, pv %q; want OOM and none", err, value("{s}pv"))
	}
	if n, err := run(`redis.call('DEL', '{s}none') return redis.call('INCR', KEYS[1])`); n != int64(1) || err != nil {
		t.Errorf("script B, DEL then INCR: %v, %v; Redis lets it pass with 1", n, err)
	}

	// The shape of our commits: check, then a write that needs memory before everything else. It is refused as a whole, even
	// where it would go on to delete.
	commit := `
		local held = redis.call('HMGET', KEYS[2], 'epoch', 'offset')
		if held[1] ~= 'e' or held[2] ~= '7' then return redis.error_reply('OFFSET') end
		local first = redis.pcall('HSET', KEYS[2], 'dirty', '1')
		if type(first) == 'table' and first.err then return first end
		redis.call('DEL', '{s}none')
		redis.call('INCR', KEYS[1])
		redis.call('HSET', KEYS[2], 'offset', '8')
		redis.call('HDEL', KEYS[2], 'dirty')
		return 1`
	if _, err := run(commit); !IsOOM(err) {
		t.Errorf("commit: %v, want OOM", err)
	}
	if meta := c.HGetAll(ctx, "{s}meta").Val(); value("{s}pv") != "1" || meta["offset"] != "7" || len(meta) != 2 {
		t.Errorf("after the refused commit: pv %s, meta %v; want 1, offset 7 and not dirty", value("{s}pv"), meta)
	}
	if err := c.ConfigSet(ctx, "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := run(commit); n != int64(1) || err != nil || value("{s}pv") != "2" {
		t.Errorf("commit with memory: %v, %v, pv %s; want 1 and pv 2", n, err, value("{s}pv"))
	}
}
