package main

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/ident"
	"github.com/rollcall/rollcall/internal/realtest"
)

// behindProxy serves with a Redis of the test's own, reached through a proxy.
func behindProxy(t *testing.T, redis *realtest.RedisServer, args ...string) (*server, *realtest.Proxy) {
	t.Helper()
	p := realtest.NewProxy(t, redis.Addr)
	return start(t, t.TempDir(), append(args, "--redis.url=redis://"+p.Addr)...), p
}

// duplicate sends an event again. The answer comes when it and everything before it is applied.
func (s *server) duplicate(body string) {
	s.t.Helper()
	if code, a := s.post("?wait=30s", body); code != 202 || a.Accepted != 0 || a.Duplicates != 1 || a.Applied == nil || !*a.Applied {
		s.t.Errorf("%s again: %d %+v; want a duplicate", body, code, a)
	}
}

// The id is remembered, then Redis does not answer: the client hears that nothing is counted yet and sends the event again. The
// projector goes on with it, and after a kill -9 the next one does.
func TestDD07_TheIDIsKnownBeforeTheCountIsIn(t *testing.T) {
	redis := realtest.Redis(t)
	s, p := behindProxy(t, redis)
	const e9 = `{"event":"dd07","user":"u","id":"e9"}`
	unapplied := func() {
		t.Helper()
		if code, a := s.post("?wait=300ms", e9); code != 202 || a.Accepted != 1 || a.Applied == nil || *a.Applied {
			t.Errorf("with Redis hanging: %d %+v; want accepted, not applied", code, a)
		}
	}
	redis.Pause()
	unapplied()
	unapplied()
	redis.Resume()
	s.duplicate(e9)
	s.counted("dd07", 1, 1)

	redis.Pause()
	const e10 = `{"event":"dd07","user":"v","id":"e10"}`
	s.accepted("", e10, 1)
	s.accepted("", e10, 1)
	s.kill()
	redis.Resume()
	s = start(t, s.dir, "--redis.url=redis://"+p.Addr)
	s.duplicate(e10)
	s.counted("dd07", 2, 2)
	s.stop()
}

// Redis executes the commit of e1 and the reply is lost.
func TestDD08_TheReplyOfACommitIsLost(t *testing.T) {
	s, p := behindProxy(t, realtest.Redis(t))
	for i := range 3 {
		h := p.OnNext(func(cmd [][]byte) bool {
			return bytes.EqualFold(cmd[0], []byte("EVALSHA")) && bytes.Contains(bytes.Join(cmd, []byte(" ")), []byte(":counters:demo:pv:dd08:"))
		}, realtest.DropReply)
		body := fmt.Sprintf(`{"event":"dd08","user":"u","id":"e%d"}`, i)
		s.accepted("?wait=30s", body, 1)
		select {
		case <-h.Hit():
		default:
			t.Fatal("the event is applied and no reply was dropped")
		}
		s.duplicate(body)
		s.counted("dd08", int64(i+1), 1)
	}
	s.stop()
}

// A key of the commit has the wrong type: what is in can't be taken back, so nothing is counted on top. The caller hears that the
// event is not applied, readiness says why, and after a rebuild every number is right.
func TestDD09_AFailingCommandIsSeenAndMended(t *testing.T) {
	redis := realtest.Redis(t)
	s, p := behindProxy(t, redis)
	now := time.Now().UTC()
	hurt := fmt.Sprintf("rc:{%s}:counters:demo:uv:dd09:%s", ident.Tag(ident.Shard(16, "demo", "dd09")), now.Format(time.DateOnly))
	if err := redis.Client().LPush(t.Context(), hurt, "no sketch").Err(); err != nil {
		t.Fatal(err)
	}
	event := fmt.Sprintf(`{"event":"dd09","user":"u","id":"e1","ts":%d}`, now.UnixMilli())
	for range 2 {
		if code, a := s.post("?wait=300ms", event); code != 202 || a.Applied == nil || *a.Applied {
			t.Errorf("answer %d %+v; want accepted, not applied", code, a)
		}
	}
	until(t, "readiness names the half-written shard", func() bool {
		res, err := http.Get(s.url + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode == http.StatusServiceUnavailable && strings.Contains(s.get("/readyz"), "half written")
	})
	if _, err := redis.Client().Del(t.Context(), hurt).Result(); err != nil {
		t.Fatal(err)
	}
	s.stop()
	if out, errs, code := cli(t, s.dir, "rebuild", "counters", "--redis.url=redis://"+p.Addr); code != 0 {
		t.Fatalf("rebuild: exit %d\n%s%s", code, out, errs)
	}
	s = start(t, s.dir, "--redis.url=redis://"+p.Addr)
	s.duplicate(event)
	s.counted("dd09", 1, 1)
	s.counted("*", 1, 1)
	s.stop()
}

// The master is demoted behind its own host name while events flow. Connections to it stay open and refuse writes.
func TestRD01_DemotedBehindItsName(t *testing.T) {
	a, b := realtest.Redis(t), realtest.Redis(t)
	b.ReplicaOf(a)
	s, p := behindProxy(t, a)
	sent := int64(0)
	send := func(n int) {
		t.Helper()
		for range n {
			sent++
			s.accepted("", fmt.Sprintf(`{"event":"rd01","user":"u%d","id":"%d"}`, sent%10, sent), 1)
		}
	}
	send(50)
	s.counted("rd01", sent, 10)
	b.WaitInSync(a)
	b.Promote()
	a.ReplicaOf(b)
	send(20)
	until(t, "the demoted master refuses a commit", func() bool { return strings.Contains(s.stderr.String(), "READONLY") })

	p.SetTarget(b.Addr)
	send(50)
	s.counted("rd01", sent, 10) // no restart, and all that was accepted
	total := fmt.Sprintf("rc:{%s}:counters:demo:total:rd01", ident.Tag(ident.Shard(16, "demo", "rd01")))
	if n, err := b.Client().Get(t.Context(), total).Int64(); err != nil || n != sent {
		t.Errorf("the new master has counted %d, %v; want %d", n, err, sent)
	}
	s.stop()
}
