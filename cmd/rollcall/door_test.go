package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// configure writes the configuration that the next start reads.
func configure(t *testing.T, dir, yaml string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "rollcall.yaml"), []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
}

// beacon sends one event with the write key in the URL, as a page does, and wants a status.
func (s *server) beacon(want int, body string, header ...string) *http.Response {
	s.t.Helper()
	res, text := s.request("POST", "/v1/events?key="+s.key(writeName), body, header...)
	if res.StatusCode != want {
		s.t.Fatalf("%s with %q: %d %s; want %d", body, header, res.StatusCode, text, want)
	}
	return res
}

func TestHT01_ABeaconsContentTypeDoesNotMatter(t *testing.T) {
	s := start(t, t.TempDir())
	for _, kind := range []string{"text/plain;charset=UTF-8", "", "application/json"} {
		header := []string{"Origin", "https://shop.example", "User-Agent", firefox}
		if kind != "" {
			header = append(header, "Content-Type", kind)
		}
		if got := s.beacon(202, `{"event":"leave","user":"u1"}`, header...).Header.Get("Access-Control-Allow-Origin"); got != "*" {
			t.Errorf("%q: Access-Control-Allow-Origin %q; want *, the default", kind, got)
		}
	}
	s.counted("leave", 3, 1)
}

func TestHT02_APreflightIsAnsweredForListedOriginsOnly(t *testing.T) {
	dir := t.TempDir()
	configure(t, dir, "http:\n  origins: [https://shop.example, \"null\"]\n")
	s := start(t, dir)
	preflight := func(path, origin string) http.Header {
		t.Helper()
		res, body := s.request("OPTIONS", path, "", "Origin", origin, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "content-type")
		if res.StatusCode != 204 || body != "" {
			t.Errorf("%s from %s: %d %q; want an empty 204", path, origin, res.StatusCode, body)
		}
		if res.Header.Get("Vary") != "Origin" {
			t.Errorf("%s from %s: Vary %q", path, origin, res.Header.Get("Vary"))
		}
		return res.Header
	}
	for _, path := range []string{"/v1/events", "/v1/events?key=" + s.key(writeName), "/v1/track"} {
		h := preflight(path, "https://shop.example")
		if h.Get("Access-Control-Allow-Origin") != "https://shop.example" || h.Get("Access-Control-Allow-Credentials") != "true" ||
			!strings.Contains(h.Get("Access-Control-Allow-Headers"), "content-type") || !strings.Contains(h.Get("Access-Control-Allow-Methods"), "POST") {
			t.Errorf("%s, listed: %v", path, h)
		}
		for name := range preflight(path, "https://evil.example") {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s, unlisted: has %s", path, name)
			}
		}
	}
	res := s.beacon(202, `{"event":"a"}`, "Origin", "https://shop.example", "User-Agent", firefox)
	if res.Header.Get("Access-Control-Allow-Origin") != "https://shop.example" || res.Header.Get("Access-Control-Allow-Credentials") != "true" {
		t.Errorf("the answer itself: %v", res.Header)
	}
	res = s.beacon(202, `{"event":"a"}`, "Origin", "https://evil.example", "User-Agent", firefox)
	if res.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("the answer to an unlisted origin: %v", res.Header)
	}
}

func TestHT03_TheNullOriginNeverGetsCredentials(t *testing.T) {
	dir := t.TempDir()
	configure(t, dir, "http:\n  origins: \"https://shop.example, null\"\n")
	s := start(t, dir)
	res := s.beacon(202, `{"event":"sandboxed"}`, "Origin", "null", "User-Agent", firefox)
	if res.Header.Get("Access-Control-Allow-Origin") != "null" || res.Header.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("headers %v; want the origin and no credentials", res.Header)
	}
	s.counted("sandboxed", 1, 0)
}

const (
	firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0"
	chrome  = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"
)

func TestHT04_ADirectClientCannotChooseItsAddress(t *testing.T) {
	dir := t.TempDir()
	configure(t, dir, "projects: [{id: demo, anonymous: stable}]\nlimits: {max_events: 10, address_rate: 100/h}\n")
	s := start(t, dir)
	for i := range 100 {
		s.beacon(202, `{"event":"faked"}`, "X-Forwarded-For", fmt.Sprintf("1.2.3.%d", i), "User-Agent", firefox)
	}
	res := s.beacon(429, `{"event":"faked"}`, "X-Forwarded-For", "9.9.9.9", "User-Agent", firefox)
	if after, err := strconv.Atoi(res.Header.Get("Retry-After")); err != nil || after < 1 || res.Header.Get("RateLimit-Limit") != "100" || res.Header.Get("RateLimit-Remaining") != "0" {
		t.Errorf("headers of a 429: %v", res.Header)
	}
	s.counted("faked", 100, 1)
	if n := s.metric(`rollcall_limited_total{tier="address"}`); n != 1 {
		t.Errorf("%v requests limited by address; want 1", n)
	}
}

func TestHT06_AddressesWithPortsAreUnderstood(t *testing.T) {
	dir := t.TempDir()
	configure(t, dir, "projects: [{id: demo, anonymous: stable}]\nhttp: {trusted_proxies: 127.0.0.0/8}\n")
	s := start(t, dir)
	for _, forwarded := range []string{
		"198.51.100.7:44321", "198.51.100.7", "[2001:db8::7]:443", "2001:db8::7", // two visitors
		"unknown", "198.51.100.7, garbage", "", // the proxy itself
	} {
		s.beacon(202, `{"event":"ported"}`, "X-Forwarded-For", forwarded, "User-Agent", firefox)
	}
	s.counted("ported", 7, 3)
	if n := s.metric(`rollcall_client_address_total{from="unparsable"}`); n != 2 {
		t.Errorf("%v unparsable addresses; want 2", n)
	}
}

func TestHT07_AnUnknownProxyTellsOnItself(t *testing.T) {
	for _, x := range []struct {
		trust string
		uv    int64
	}{{"http: {trusted_proxies: [127.0.0.1]}\n", 3}, {"", 1}} {
		dir := t.TempDir()
		configure(t, dir, "projects: [{id: demo, anonymous: daily}]\n"+x.trust)
		s := start(t, dir)
		for i := 1; i <= 3; i++ {
			s.beacon(202, `{"event":"proxied"}`, "X-Forwarded-For", fmt.Sprintf("198.51.100.%d", i), "User-Agent", firefox)
		}
		s.counted("proxied", 3, x.uv)
		warned := strings.Contains(s.stderr.String(), "untrusted peer")
		if warned != (x.uv == 1) || (s.metric(`rollcall_client_address_total{from="untrusted"}`) == 3) != warned {
			t.Errorf("trusted proxies %q: warned %v", x.trust, warned)
		}
		s.stop()
	}
}

func TestHT12_BotsAreKeptApart(t *testing.T) {
	s := start(t, t.TempDir())
	bots := 0
	for i, agent := range []string{
		firefox, chrome,
		"Mozilla/5.0 (Linux; Android 9; CUBOT_X19) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Mobile Safari/537.36",
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/142.0.0.0 Safari/537.36",
		"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
		"",
	} {
		status, a := s.post("?wait=30s", fmt.Sprintf(`{"event":"hit","user":"u%d","id":"%d"}`, i, i), "User-Agent", agent)
		if status != 202 || a.Accepted+a.Bots != 1 || a.Applied == nil || !*a.Applied {
			t.Errorf("%q: %d %+v", agent, status, a)
		}
		bots += a.Bots
	}
	if bots != 3 { // whoever sends no agent is no person either
		t.Errorf("%d bots; want 3", bots)
	}
	s.counted("hit", 3, 3)
}

func TestAFrequencyRuleHoldsForEachUser(t *testing.T) {
	dir := t.TempDir()
	configure(t, dir, "projects:\n  - id: demo\n    frequency:\n      - {event: share, limit: 3, per: 1h}\n")
	s := start(t, dir)
	for i := range 3 {
		s.beacon(202, fmt.Sprintf(`{"event":"share","user":"u1","id":"%d"}`, i))
	}
	res := s.beacon(429, `{"event":"share","user":"u1","id":"3"}`)
	if after, err := strconv.Atoi(res.Header.Get("Retry-After")); err != nil || after < 3500 || after > 3600 {
		t.Errorf("Retry-After %q; want about an hour", res.Header.Get("Retry-After"))
	}
	s.beacon(202, `{"event":"share","user":"u1","id":"0"}`) // a retry of what has passed
	s.beacon(202, `{"event":"share","user":"u2"}`)
	s.beacon(202, `{"event":"other","user":"u1"}`)
	for range 3 { // nobody: their address counts
		s.beacon(202, `{"event":"share"}`)
	}
	s.beacon(429, `{"event":"share"}`)
	// In a batch only those over the rule are refused, each with its index.
	status, a := s.post("", `[{"event":"share","user":"u3"},{"event":"share","user":"u1"},{"event":"share","user":"u3"},{"event":"share","user":"u3"},{"event":"share","user":"u3"}]`)
	if status != 202 || a.Accepted != 3 || len(a.Rejected) != 2 || a.Rejected[0].Index != 1 || a.Rejected[1].Index != 4 || a.Rejected[1].Code != "too_frequent" {
		t.Errorf("a batch: %d %+v", status, a)
	}
	s.counted("share", 3+1+3+3, 3)
	if n := s.metric(`rollcall_limited_total{tier="frequency"}`); n != 4 {
		t.Errorf("%v events refused by the rule; want 4", n)
	}

	// With Redis hanging beacons pass and whoever waits is refused, both visibly.
	pid := s.redisPID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume := func() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	s.beacon(202, `{"event":"share","user":"u1"}`)
	res, text := s.request("POST", "/v1/events?wait=1s&key="+s.key(writeName), `{"event":"share","user":"u1"}`)
	if res.StatusCode != 503 || !strings.Contains(text, "limit_unavailable") || res.Header.Get("Retry-After") == "" {
		t.Errorf("waiting while Redis hangs: %d %s", res.StatusCode, text)
	}
	if p, r := s.metric(`rollcall_limit_store_down_total{outcome="passed"}`), s.metric(`rollcall_limit_store_down_total{outcome="refused"}`); p != 1 || r != 1 {
		t.Errorf("%v passed, %v refused; want one each", p, r)
	}
	resume()
	s.counted("share", 11, 3)
}

func TestCallsThatWaitHaveALimitOverAllNodes(t *testing.T) {
	dir := t.TempDir()
	configure(t, dir, "limits: {sync_rate: 5/h}\n")
	s := start(t, dir)
	for range 5 {
		if status, a := s.post("?wait=30s", `{"event":"w"}`); status != 202 {
			t.Fatalf("%d %+v", status, a)
		}
	}
	res, text := s.request("POST", "/v1/events?wait=1s&key="+s.key(writeName), `{"event":"w"}`)
	if res.StatusCode != 429 || !strings.Contains(text, "limits.sync_rate") || res.Header.Get("RateLimit-Limit") != "5" || res.Header.Get("Retry-After") == "" {
		t.Errorf("the sixth: %d %s %v", res.StatusCode, text, res.Header)
	}
	s.beacon(202, `{"event":"w"}`) // a beacon does not wait
	s.counted("w", 6, 0)           // with another key
}

func TestADryRunStoresNothing(t *testing.T) {
	s := start(t, t.TempDir())
	res, text := s.request("POST", "/v1/events?dry_run=1&key="+s.key(writeName), `[{"event":"dry"},{"event":"dry","user":"null"}]`)
	if res.StatusCode != 200 || !strings.Contains(text, `"dry_run":true`) || !strings.Contains(text, `"accepted":1`) || !strings.Contains(text, "placeholder_user") {
		t.Errorf("%d %s", res.StatusCode, text)
	}
	if res, text := s.request("POST", "/v1/events?dry_run=1&key="+s.key(writeName), `{"event":""}`); res.StatusCode != 422 {
		t.Errorf("all rejected: %d %s", res.StatusCode, text)
	}
	s.accepted("?wait=30s", `{"event":"dry"}`, 1)
	s.counted("dry", 1, 0)
}

// A client that sends its request byte by byte holds a connection for ten seconds and nobody up.
func TestSlowClientsAreCut(t *testing.T) {
	s := start(t, t.TempDir())
	addr := strings.TrimPrefix(s.url, "http://")
	var slow []net.Conn
	for range 200 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "POST /v1/events HTTP/1.1\r\nHost: x\r\nX-A: "); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, c)
	}
	s.accepted("?wait=30s", `{"event":"quick"}`, 1)
	for _, c := range slow {
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Fatalf("a slow connection was not closed: %v", err)
		}
	}
	// A header beyond 16 KiB is refused before anything else is looked at.
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: "+strings.Repeat("a", 64<<10)+"\r\n\r\n"); err != nil {
		t.Logf("the server hung up while we wrote: %v", err)
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || !strings.Contains(line, "431") {
		t.Errorf("a large header: %q, %v; want 431", line, err)
	}
}
