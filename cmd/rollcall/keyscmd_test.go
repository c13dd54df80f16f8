package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// run is a subcommand that must succeed; its stdout.
func (s *server) run(args ...string) string {
	s.t.Helper()
	out, errs, code := cli(s.t, s.dir, args...)
	if code != 0 {
		s.t.Fatalf("rollcall %v: exit %d\n%s%s", args, code, out, errs)
	}
	return strings.TrimSpace(out)
}

// status is what the server says to a key that sends an event, and to one that asks for counts.
func (s *server) status(key string) (sends, asks int) {
	s.t.Helper()
	res, _ := s.request("POST", "/v1/events?key="+key, `{"event":"k"}`)
	sends = res.StatusCode
	res, _ = s.request("GET", "/v1/counts?event=k&key="+key, "")
	return sends, res.StatusCode
}

func TestProjectsAndKeysByCommand(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	s.run("projects", "create", "shop", "--zone", "Asia/Shanghai", "--anonymous", "daily", "--frequency", "share=10/1h", "--key-rate", "1000/s burst 6000")
	write := s.run("keys", "create", "--project", "shop", "--name", "web")
	read := s.run("keys", "create", "--project", "shop", "--scope", "read", "--expires", "90d")
	check := func(what, key string, sends, asks int) {
		t.Helper()
		if a, b := s.status(key); a != sends || b != asks {
			t.Errorf("%s: sends %d, asks %d; want %d and %d", what, a, b, sends, asks)
		}
	}
	check("a write key", write, 202, 403)
	check("a read key", read, 403, 200)
	if list := s.run("projects", "list", "--csv"); !strings.Contains(list, "shop,Asia/Shanghai,168h,daily,flag,1000/s burst 6000") || !strings.Contains(list, "demo,UTC") {
		t.Errorf("projects list:\n%s", list)
	}
	var keys []keyRow
	list := func() []keyRow {
		t.Helper()
		if err := json.Unmarshal([]byte(s.run("keys", "list", "--project", "shop", "--json")), &keys); err != nil {
			t.Fatal(err)
		}
		return keys
	}
	if got := list(); len(got) != 2 || got[0].LastUsed.IsZero() || got[0].Key+got[1].Key != "" {
		t.Errorf("keys list: %+v; want two used keys without their secrets", got)
	}
	if all := s.run("keys", "list"); !strings.Contains(all, write[:12]) || !strings.Contains(all, "(all)") || strings.Contains(all, write) {
		t.Errorf("all keys:\n%s", all)
	}

	// Rotation: both work, then only the new one.
	second := s.run("keys", "rotate", write[:12], "--project", "shop")
	check("the rotated key within its grace", write, 202, 403)
	check("its successor", second, 202, 403)
	s.run("keys", "revoke", write, "--project", "shop") // the whole key does as well as its id
	check("a revoked key", write, 401, 401)

	// What was answered holds after a kill, and in a server that starts.
	s.kill()
	s = start(t, dir)
	check("a revoked key after a kill", write, 401, 401)
	check("a key after a kill", second, 202, 403)
	s.writeKey, s.readKey = second, read
	s.accepted("?wait=30s", `{"event":"after"}`, 1)
	s.counted("after", 1, 1) // anonymous: daily

	s.run("projects", "revoke", "shop")
	check("a closed project", second, 403, 403)
	s.run("projects", "update", "shop", "--closed=false", "--frequency", "")
	check("an open one", second, 202, 403)
	if list := s.run("projects", "list", "--json"); strings.Contains(list, `"event": "share"`) {
		t.Errorf("the rule was not removed:\n%s", list)
	}
	for _, x := range []struct {
		says string
		args []string
	}{
		{"project_exists", []string{"projects", "create", "shop"}},
		{"read_only", []string{"projects", "update", "demo", "--bots", "count"}},
		{"bad_project", []string{"projects", "create", "Shop"}},
		{"nothing to change", []string{"projects", "update", "shop"}},
		{"key_not_found", []string{"keys", "revoke", "rcw_NONE", "--project", "shop"}},
		{"key_not_found", []string{"keys", "revoke", second[:12]}},
		{"want EVENT=LIMIT/SPAN", []string{"projects", "update", "shop", "--frequency", "share"}},
		{"--expires", []string{"keys", "create", "--project", "shop", "--expires", "soon"}},
		{"bad_rate", []string{"projects", "update", "shop", "--sync-rate", "often"}},
	} {
		if out, errs, code := cli(t, dir, x.args...); code != 1 || !strings.Contains(errs, x.says) {
			t.Errorf("%v: exit %d %s%s; want 1 and %s", x.args, code, out, errs, x.says)
		}
	}
	s.stop()
}

// SIGHUP takes over projects and keys of the file, whole or not at all.
func TestHangupReadsProjectsAgain(t *testing.T) {
	dir := t.TempDir()
	sum := func(key string) string { h := sha256.Sum256([]byte(key)); return hex.EncodeToString(h[:]) }
	one, two := "rcw_"+strings.Repeat("A", 40), "rcr_"+strings.Repeat("B", 40)
	file := func(zone, more string) {
		configure(t, dir, fmt.Sprintf("projects:\n  - id: shop\n    zone: %s\n    keys:\n      - {kind: write, sha256: %q, name: web}\n%s", zone, sum(one), more))
	}
	file("Asia/Tokyo", "")
	s := start(t, dir)
	hangup := func(says string) {
		t.Helper()
		before := strings.Count(s.stderr.String(), says)
		s.signal(syscall.SIGHUP)
		until(t, says, func() bool { return strings.Count(s.stderr.String(), says) > before })
	}
	if a, b := s.status(one); a != 202 || b != 403 {
		t.Errorf("before: %d, %d", a, b)
	}
	if a, b := s.status(two); a != 401 || b != 401 {
		t.Errorf("not yet there: %d, %d", a, b)
	}
	file("Asia/Tokyo", fmt.Sprintf("      - {kind: read, sha256: %q, expires: 2099-01-01T00:00:00Z}\n  - id: second\n", sum(two)))
	hangup("projects and keys taken over")
	if a, b := s.status(two); a != 403 || b != 200 {
		t.Errorf("the new key: %d, %d", a, b)
	}
	if list := s.run("projects", "list", "--csv"); !strings.Contains(list, "second,UTC") {
		t.Errorf("the new project is missing:\n%s", list)
	}
	file("Europe/Rome", "")
	hangup("a zone can't change")
	if _, b := s.status(two); b != 200 {
		t.Errorf("a refused configuration was taken over: %d", b)
	}
	file("Asia/Tokyo", "nonsense: 1\n")
	hangup("there is no such option")
	file("Asia/Tokyo", "")
	hangup("projects and keys taken over")
	if a, b := s.status(two); a != 401 || b != 401 {
		t.Errorf("a key that was taken out: %d, %d", a, b)
	}
	s.stop()
}

// selfSigned writes a certificate for 127.0.0.1 and its key, and returns a client that trusts it.
func selfSigned(t *testing.T, dir string, serial int64) *http.Client {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "rollcall"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, text := range map[string][]byte{"cert.pem": cert, "key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "localhost"}, ForceAttemptHTTP2: true}}
}

func TestTLSByFile(t *testing.T) {
	dir := t.TempDir()
	client := selfSigned(t, dir, 1)
	s := launch(t, dir, "--tls.cert", filepath.Join(dir, "cert.pem"), "--tls.key", filepath.Join(dir, "key.pem"))
	until(t, "an answer by TLS", func() bool {
		url, err := os.ReadFile(filepath.Join(dir, urlName))
		if err != nil {
			return false
		}
		s.url = strings.TrimSpace(string(url))
		res, err := client.Get(s.url + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode == 200
	})
	res, err := client.Post(s.url+"/v1/events?wait=30s&key="+s.key(writeName), "text/plain", strings.NewReader(`{"event":"secure"}`))
	if err != nil || res.StatusCode != 202 || res.ProtoMajor != 2 {
		t.Fatalf("%v %v; want 202 by HTTP/2", res, err)
	}
	res.Body.Close()
	if res, err := http.Get("http" + strings.TrimPrefix(s.url, "https") + "/healthz"); err == nil {
		if res.Body.Close(); res.StatusCode != 400 {
			t.Errorf("plain HTTP: %d", res.StatusCode)
		}
	}
	// A renewed certificate is served without a restart.
	client = selfSigned(t, dir, 2)
	until(t, "the renewed certificate", func() bool {
		res, err := client.Get(s.url + "/healthz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.TLS.PeerCertificates[0].SerialNumber.Int64() == 2
	})
	s.stop()

	s = launch(t, dir, "--tls.cert", filepath.Join(dir, "none.pem"), "--tls.key", filepath.Join(dir, "key.pem"))
	if code := s.wait(); code != 1 || !strings.Contains(s.stderr.String(), "none.pem") {
		t.Errorf("a missing certificate: exit %d\n%s", code, s.stderr.String())
	}
}
