package redisx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/realtest"
)

func optionsOf(addr string) redis.UniversalOptions {
	return redis.UniversalOptions{Addrs: []string{addr}}
}

// refused opens a URL that must be refused for good, and returns why.
func refused(t *testing.T, url string) string {
	t.Helper()
	var l logs
	r, err := Open(deadline(t), Options{URL: url, Log: l.logger()})
	if err == nil {
		_ = r.Close(context.Background())
	}
	if !errors.Is(err, ErrUnfit) {
		t.Fatalf("Open: %v, want ErrUnfit", err)
	}
	for _, text := range []string{err.Error(), l.String()} {
		if strings.Contains(text, "s3cret") {
			t.Errorf("the password is shown: %s", text)
		}
	}
	return err.Error()
}

func TestCheck_EvictionPolicyIsRefused(t *testing.T) {
	s := realtest.Redis(t, "maxmemory-policy allkeys-lru")
	contains(t, refused(t, "redis://"+s.Addr), s.Addr, "allkeys-lru", "maxmemory-policy noeviction")
	contains(t, refused(t, "unix://"+s.Sock), s.Sock, "allkeys-lru")
}

func TestCheck_AgainAfterReconnect(t *testing.T) {
	good, bad := realtest.Redis(t), realtest.Redis(t, "maxmemory-policy volatile-ttl")
	p := realtest.NewProxy(t, good.Addr)
	r := open(t, Options{URL: "redis://" + p.Addr})
	p.SetTarget(bad.Addr)
	p.CutAll()
	realtest.Eventually(t, patience, func() error {
		if err := r.CheckServer(deadline(t)); !errors.Is(err, ErrUnfit) {
			return fmt.Errorf("CheckServer: %v, want ErrUnfit", err)
		}
		return nil
	})
}

func TestCheck_Login(t *testing.T) {
	s := realtest.Redis(t)
	for _, user := range []string{"counter on >s3cret ~rc:* +@all -config", "blind on >s3cret ~rc:* +ping +hello", "default resetpass >s3cret/?#@"} {
		args := []any{"ACL", "SETUSER"}
		for word := range strings.FieldsSeq(user) {
			args = append(args, word)
		}
		if err := s.Client().Do(deadline(t), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	contains(t, refused(t, "redis://"+s.Addr), "refuses the login", "NOAUTH")
	contains(t, refused(t, "redis://:s3cretly@"+s.Addr), "refuses the login")
	contains(t, refused(t, "redis://blind:s3cret@"+s.Addr), "NOPERM")
	open(t, Options{URL: "redis://:s3cret%2F%3F%23%40@" + s.Addr})
	r := open(t, Options{URL: "redis://counter:s3cret@" + s.Addr + "/2"}) // may not run CONFIG GET
	if err := r.Commit.Set(deadline(t), "rc:k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestCheck_Replica(t *testing.T) {
	master, replica := realtest.Redis(t), realtest.Redis(t)
	replica.ReplicaOf(master)
	r := open(t, Options{URL: "redis://" + replica.Addr})
	err := r.CheckServer(deadline(t))
	if err == nil || errors.Is(err, ErrUnfit) {
		t.Fatalf("CheckServer of a replica: %v, want an error that passes with its promotion", err)
	}
	contains(t, err.Error(), "replica", "redis+sentinel://")
	replica.Promote()
	if err := r.CheckServer(deadline(t)); err != nil {
		t.Fatal(err)
	}
}

func TestOpen_RedisIsDown(t *testing.T) {
	s := realtest.Redis(t)
	s.Kill()
	var l logs
	r := open(t, Options{URL: "redis://u:s3cret@" + s.Addr, Log: l.logger()})
	if err := r.CheckServer(deadline(t)); err == nil || errors.Is(err, ErrUnfit) {
		t.Fatalf("CheckServer of a dead server: %v, want an error that passes", err)
	}
	contains(t, l.String(), "level=WARN", s.Addr)
	if strings.Contains(l.String(), "s3cret") {
		t.Errorf("the password is shown: %s", l.String())
	}
	up := open(t, Options{URL: "redis://" + s.Addr})
	s.Start()
	realtest.Eventually(t, patience, func() error { return up.CheckServer(deadline(t)) })
	if up.Info().Version == "" {
		t.Error("no version after a check")
	}
}

// canned answers INFO and CONFIG GET instead of a server: servers that are not at hand here.
type canned struct {
	info, policy string
	configErr    error
}

func (canned) DialHook(next redis.DialHook) redis.DialHook { return next }
func (canned) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (c canned) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		switch cmd := cmd.(type) {
		case *redis.StringCmd:
			cmd.SetVal(strings.ReplaceAll(c.info, " ", "\r\n"))
		case *redis.MapStringStringCmd:
			cmd.SetErr(c.configErr)
			cmd.SetVal(map[string]string{"maxmemory-policy": c.policy})
		}
		return cmd.Err()
	}
}

func TestCheckNode(t *testing.T) {
	forbidden := redis.ErrCrossSlot // any reply of the server
	for _, c := range []struct {
		canned
		want  string // in the error; "" none
		unfit bool
	}{
		{canned{info: "redis_version:6.2.0 maxmemory_policy:noeviction role:master"}, "", false},
		{canned{info: "redis_version:10.0.1 maxmemory_policy:noeviction role:master"}, "", false},
		{canned{info: "redis_version:6.0.16 maxmemory_policy:noeviction role:master"}, "needs 6.2", true},
		{canned{info: "redis_version:5.9 maxmemory_policy:noeviction role:master"}, "needs 6.2", true},
		{canned{info: "maxmemory_policy:noeviction role:master"}, "needs 6.2", true},
		{canned{info: "redis_version:x.y maxmemory_policy:noeviction"}, "needs 6.2", true},
		{canned{info: "redis_version:7.0.1 role:master", policy: "noeviction"}, "", false},
		{canned{info: "redis_version:7.0.1 role:master", policy: "allkeys-lfu"}, "allkeys-lfu", true},
		{canned{info: "redis_version:7.0.1 role:master", configErr: forbidden}, "neither in INFO memory nor to CONFIG GET", true},
		{canned{info: "redis_version:7.0.1 role:master", configErr: io.EOF}, "CONFIG GET", false},
	} {
		client := redis.NewClient(&redis.Options{})
		client.AddHook(c.canned)
		r := &Redis{target: target{mode: "single"}}
		role, err := r.checkNode(deadline(t), client, "there")
		_ = client.Close()
		switch {
		case c.want == "" && (err != nil || role != "master"):
			t.Errorf("%+v: %q, %v; want master and no error", c.canned, role, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrUnfit) != c.unfit):
			t.Errorf("%+v: %v; want %q, unfit %v", c.canned, err, c.want, c.unfit)
		}
	}
}

func TestIs(t *testing.T) {
	reply := func(s string) error { return fmt.Errorf("commit: %w", serverError(s)) }
	for _, c := range []struct {
		err                    error
		readOnly, oom, unknown bool
	}{
		{nil, false, false, false},
		{redis.Nil, false, false, false},
		{redis.TxFailedErr, false, false, false},
		{reply("READONLY You can't write against a read only replica. script: 1, on @user_script:1."), true, false, false},
		{reply("ERR Error running script (call to f_12): @user_script:1: @user_script: 1: -READONLY You can't write against a read only replica. "), true, false, false},
		{reply("OOM command not allowed when used memory > 'maxmemory'."), false, true, false},
		{reply("ERR Error running script (call to f_12): @user_script:1: @user_script: 1: -OOM command not allowed when used memory > 'maxmemory'. "), false, true, false},
		{reply("WRONGTYPE key named -OOM of READONLY"), false, false, false},
		{reply("LOADING Redis is loading the dataset in memory"), false, false, false},
		{reply("MOVED 1 127.0.0.1:1"), false, false, false},
		{fmt.Errorf("commit: %w", io.EOF), false, false, true},
		{&net.OpError{Op: "read", Err: io.ErrUnexpectedEOF}, false, false, true},
		{context.DeadlineExceeded, false, false, true},
		{context.Canceled, false, false, true},
		{redis.ErrPoolTimeout, false, false, true},
	} {
		if r, o, u := IsReadOnly(c.err), IsOOM(c.err), IsUnknown(c.err); r != c.readOnly || o != c.oom || u != c.unknown {
			t.Errorf("%v: read-only %v, OOM %v, unknown %v; want %v, %v, %v", c.err, r, o, u, c.readOnly, c.oom, c.unknown)
		}
	}
}

// serverError is an error reply, as the client makes it from the wire.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}
