package realtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func through(t *testing.T, p *Proxy) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: p.Addr, MaxRetries: -1, Protocol: 3, PoolSize: 4})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func has(word string) func([][]byte) bool {
	return func(cmd [][]byte) bool {
		for _, w := range cmd {
			if string(w) == word {
				return true
			}
		}
		return false
	}
}

func get(t *testing.T, c *redis.Client, key, want string) {
	t.Helper()
	got, err := c.Get(context.Background(), key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	if got != want {
		t.Fatalf("GET %s = %q, want %q", key, got, want)
	}
}

func TestProxy_PassesEverything(t *testing.T) {
	s := Redis(t)
	ctx := context.Background()
	for _, target := range []string{s.Addr, s.Sock} {
		c := through(t, NewProxy(t, target))
		big := strings.Repeat("a\r\n$5\r\n", 100_000)
		if err := c.Set(ctx, "big", big, 0).Err(); err != nil {
			t.Fatal(err)
		}
		get(t, c, "big", big)
		cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range 1000 {
				p.HSet(ctx, "h", fmt.Sprint(i), i)
			}
			p.HGetAll(ctx, "h")
			p.Get(ctx, "absent")
			p.ZRange(ctx, "absent", 0, -1)
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		if m := cmds[1000].(*redis.MapStringStringCmd).Val(); len(m) != 1000 || m["999"] != "999" {
			t.Fatalf("HGETALL: %d fields, want 1000", len(m))
		}
	}
}

func TestProxy_DropReply(t *testing.T) {
	s := Redis(t)
	p := NewProxy(t, s.Addr)
	c := through(t, p)
	ctx := context.Background()
	h := p.OnNext(has("counter"), DropReply)
	// The reply to the command before it, in the same write, still comes through.
	cmds, err := c.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "before", "1", 0)
		pipe.Incr(ctx, "counter")
		pipe.Set(ctx, "after", "1", 0)
		return nil
	})
	if err == nil {
		t.Fatal("the pipeline succeeded, want a lost connection")
	}
	if got := cmds[0].(*redis.StatusCmd).Val(); got != "OK" {
		t.Fatalf("reply before the dropped one: %q, want OK", got)
	}
	var reply redis.Error
	if errors.As(cmds[1].Err(), &reply) || cmds[1].Err() == nil {
		t.Fatalf("dropped reply: %v, want a connection error", cmds[1].Err())
	}
	<-h.Hit()
	get(t, s.Client(), "counter", "1")
	get(t, s.Client(), "after", "")
	if n, err := c.Incr(ctx, "counter").Result(); n != 2 || err != nil { // the hook is spent
		t.Fatalf("INCR = %d, %v; want 2", n, err)
	}
}

func TestProxy_HoldRequest(t *testing.T) {
	s := Redis(t)
	p := NewProxy(t, s.Addr)
	c := through(t, p)
	ctx := context.Background()
	script := redis.NewScript(`return redis.call('APPEND', KEYS[1], ARGV[1])`)
	if err := script.Run(ctx, c, []string{"text"}, "a").Err(); err != nil {
		t.Fatal(err)
	}
	h := p.OnNext(has("held"), HoldRequest)
	if err := script.Run(ctx, c, []string{"text"}, "held").Err(); err == nil {
		t.Fatal("the held command succeeded, want a lost connection")
	}
	<-h.Hit()
	p.CutAll() // does not reach what is held
	if err := script.Run(ctx, c, []string{"text"}, "b").Err(); err != nil {
		t.Fatal(err)
	}
	get(t, s.Client(), "text", "ab")
	reply, err := h.Release()
	if err != nil || string(reply) != ":6\r\n" {
		t.Fatalf("Release = %q, %v; want :6", reply, err)
	}
	get(t, s.Client(), "text", "abheld")
}

func TestProxy_HoldRequest_Exec(t *testing.T) {
	s := Redis(t)
	p := NewProxy(t, s.Addr)
	c := through(t, p)
	ctx := context.Background()
	h := p.OnNext(has("exec"), HoldRequest)
	incr := func() error {
		_, err := c.TxPipelined(ctx, func(pipe redis.Pipeliner) error { return pipe.Incr(ctx, "n").Err() })
		return err
	}
	if incr() == nil {
		t.Fatal("the held EXEC succeeded, want a lost connection")
	}
	get(t, s.Client(), "n", "")
	if err := incr(); err != nil {
		t.Fatal(err)
	}
	if reply, err := h.Release(); err != nil || string(reply) != "*1\r\n:2\r\n" {
		t.Fatalf("Release = %q, %v; want *1 :2", reply, err)
	}
	get(t, s.Client(), "n", "2")
}

func TestProxy_ServerDiesUnderHook(t *testing.T) {
	s := Redis(t)
	p := NewProxy(t, s.Addr)
	c := through(t, p)
	h := p.OnNext(has("k"), HoldRequest)
	if c.Incr(context.Background(), "k").Err() == nil {
		t.Fatal("the held command succeeded")
	}
	<-h.Hit()
	s.Kill()
	if reply, err := h.Release(); err == nil {
		t.Fatalf("Release = %q, want an error: the server is gone", reply)
	}
}

func TestProxy_RefuseCutTarget(t *testing.T) {
	a, b := Redis(t), Redis(t)
	ctx := context.Background()
	a.Client().Set(ctx, "who", "a", 0)
	b.Client().Set(ctx, "who", "b", 0)
	p := NewProxy(t, a.Addr)
	c := through(t, p)
	get(t, c, "who", "a")
	p.SetTarget(b.Addr)
	get(t, c, "who", "a") // the pooled connection stays
	p.Refuse(true)
	p.CutAll()
	if err := c.Get(ctx, "who").Err(); err == nil {
		t.Fatal("answered while refusing")
	}
	p.Refuse(false)
	Eventually(t, patience, func() error { return c.Ping(ctx).Err() })
	get(t, c, "who", "b")
}

func TestReadCommand(t *testing.T) {
	read := func(in string) (string, error) {
		r := bufio.NewReaderSize(io.MultiReader(strings.NewReader(in)), maxLine)
		var out []string
		for {
			raw, cmd, err := readCommand(r)
			if err == io.EOF {
				return strings.Join(out, "|"), nil
			}
			if err != nil {
				return strings.Join(out, "|"), err
			}
			out = append(out, fmt.Sprintf("%s/%d", bytes.Join(cmd, []byte(" ")), len(raw)))
		}
	}
	for _, c := range []struct {
		in, want string
		fails    bool
	}{
		{"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING\r\n", "GET k/20|PING/6", false},
		{"*1\r\n$0\r\n\r\n", "/10", false},
		{"*0\r\n", "/4", false},
		{"*1\r\n$4\r\n\r\n\r\n\r\n", "\r\n\r\n/14", false},
		{"*2\r\n$3\r\nGET\r\n", "", true},
		{"*1\r\n$-1\r\n", "", true},
		{"*1\r\n:3\r\n", "", true},
		{"*9999999\r\n", "", true},
		{"*1\r\n$999999999999\r\n", "", true},
		{"*x\r\n", "", true},
		{strings.Repeat("a", maxLine+1), "", true},
	} {
		got, err := read(c.in)
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%.40q: %q, %v; want %q, fails %v", c.in, got, err, c.want, c.fails)
		}
	}
}

func TestCopyReply(t *testing.T) {
	for _, in := range []string{
		"+OK\r\n", "-ERR x\r\n", ":1\r\n", "$-1\r\n", "$5\r\na\r\nbc\r\n", "*-1\r\n", "*0\r\n", "*2\r\n*1\r\n:1\r\n$1\r\na\r\n",
		"%1\r\n+a\r\n*1\r\n,1.5\r\n", "~2\r\n:1\r\n:2\r\n", "_\r\n", "#t\r\n", "=5\r\ntxt:a\r\n", "(123\r\n",
		"|1\r\n+ttl\r\n:3\r\n$1\r\nv\r\n", ">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n",
	} {
		var out bytes.Buffer
		r := bufio.NewReaderSize(strings.NewReader(in+"+NEXT\r\n"), maxLine)
		var push bool
		if err := copyReply(r, func(p bool) io.Writer { push = p; return &out }); err != nil {
			t.Errorf("%q: %v", in, err)
		}
		if out.String() != in || push != (in[0] == '>') {
			t.Errorf("%q: copied %q, push %v", in, out.String(), push)
		}
	}
}

func TestProxy_BrokenRequestEndsTheConnection(t *testing.T) {
	s := Redis(t)
	p := NewProxy(t, s.Addr)
	conn, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, "PING\r\n*1\r\n$x\r\n"); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(conn)
	if string(all) != "+PONG\r\n" || (err != nil && !strings.Contains(err.Error(), "reset")) {
		t.Fatalf("got %q, %v; want PONG and the end", all, err)
	}
}
