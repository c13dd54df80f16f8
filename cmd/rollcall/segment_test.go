package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	analytics "gopkg.in/segmentio/analytics-go.v3"
)

// fickle stands between a client and the server: it hands every request on, and of each batch it spoils some answers afterwards. So a
// client that sends again sends what is stored already.
type fickle struct {
	*httptest.Server
	target atomic.Pointer[string]
	mu     sync.Mutex
	hurt   map[string]int // spoiled answers, by the batch
	n      int            // answers of the server
	codes  map[int]int    // of the server, by status
}

func newFickle(t *testing.T, target string) *fickle {
	f := &fickle{hurt: map[string]int{}, codes: map[int]int{}}
	f.target.Store(&target)
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// batchName is what all attempts to send a batch have in common.
var batchName = regexp.MustCompile(`"messageId":"[^"]+"`)

func (f *fickle) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	out, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, *f.target.Load()+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	out.Header = r.Header.Clone()
	res, err := http.DefaultClient.Do(out)
	if err != nil { // the server was killed: what became of it, nobody knows
		http.Error(w, "bad gateway", http.StatusBadGateway)
		return
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		http.Error(w, "bad gateway", http.StatusBadGateway)
		return
	}
	switch f.spoil(string(batchName.Find(body)), res.StatusCode) {
	case 1:
		http.Error(w, "lost", http.StatusInternalServerError)
	case 2:
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		if err := conn.(*net.TCPConn).SetLinger(0); err != nil { // a reset, not an end
			panic(err)
		}
		conn.Close()
	default:
		w.WriteHeader(res.StatusCode)
		_, _ = w.Write(answer)
	}
}

// spoil tells how to spoil an answer: two of three at first, but no batch's more than twice, since clients give up at some time.
func (f *fickle) spoil(batch string, status int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	f.codes[status]++
	how := f.n % 3
	if how > 0 && f.hurt[batch] < 2 {
		f.hurt[batch]++
		return how
	}
	return 0
}

func (f *fickle) answered() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

// spoiled is how many answers of good requests did not arrive.
func (f *fickle) spoiled(t *testing.T) (n int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for status := range f.codes {
		if status != http.StatusOK {
			t.Errorf("the server answered %v; want nothing but 200", f.codes)
		}
	}
	for _, times := range f.hurt {
		n += times
	}
	return n
}

// outcome counts what the Go client tells about its messages.
type outcome struct {
	good, bad atomic.Int64
	mu        sync.Mutex
	err       error
}

func (o *outcome) Success(analytics.Message) { o.good.Add(1) }
func (o *outcome) Failure(_ analytics.Message, err error) {
	o.mu.Lock()
	o.err = err
	o.mu.Unlock()
	o.bad.Add(1) // last: when all have been told, nobody writes err
}

// silent is a logger for a client whose errors are meant to happen.
type silent struct{}

func (silent) Logf(string, ...any)   {}
func (silent) Errorf(string, ...any) {}

const (
	segmentCalls = 2000 // of each kind
	segmentUsers = 40
)

// Segment's client for Go, with nothing changed but its endpoint, sends through lost answers and a killed server: everything is
// counted, and once.
func TestSegmentGoClient(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	f := newFickle(t, s.url)
	var told outcome
	client, err := analytics.NewWithConfig(s.key(writeName), analytics.Config{
		Endpoint: f.URL, BatchSize: 40, Interval: 100 * time.Millisecond, Callback: &told, Logger: silent{},
	})
	if err != nil {
		t.Fatal(err)
	}
	send := func(m analytics.Message) {
		if err := client.Enqueue(m); err != nil {
			t.Error(err)
		}
	}
	half := make(chan struct{})
	go func() {
		for i := range segmentCalls {
			if i == segmentCalls/2 {
				close(half)
			}
			user := fmt.Sprintf("n%d", i%segmentUsers)
			send(analytics.Track{UserId: user, Event: "Go Order", Properties: analytics.NewProperties().SetRevenue(1.5).Set("cart", map[string]any{"items": []int{1}})})
			send(analytics.Page{AnonymousId: user, Name: "Book", Properties: analytics.NewProperties().SetURL("https://shop.example/book/7?q=1")})
			send(analytics.Identify{UserId: user, Traits: analytics.NewTraits().SetName("n")})
		}
	}()
	<-half
	until(t, "some batches have arrived", func() bool { return f.answered() >= 10 })
	s.kill()
	s = start(t, dir)
	f.target.Store(&s.url)

	until(t, "the client has been told of all", func() bool { return told.good.Load()+told.bad.Load() == 3*segmentCalls })
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if told.bad.Load() > 0 {
		t.Errorf("%d messages failed: %v", told.bad.Load(), told.err)
	}
	if n := f.spoiled(t); n < 20 {
		t.Errorf("only %d answers were spoiled", n)
	}
	s.segmentCounted("Go%20Order")
	s.stop()
}

// The same by Segment's client for Node.
func TestSegmentNodeClient(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	f := newFickle(t, s.url)
	const script = "testdata/segment-node"
	ci := exec.Command("npm", "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund")
	ci.Dir = script
	if out, err := ci.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	node := exec.Command("node", "send.js", f.URL, s.key(writeName), fmt.Sprint(segmentCalls), fmt.Sprint(segmentUsers))
	node.Dir = script
	var stdout, stderr output
	node.Stdout, node.Stderr = &stdout, &stderr
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- node.Wait() }()
	t.Cleanup(func() { _ = node.Process.Kill() }) // if it has not ended

	until(t, "some batches have arrived", func() bool { return f.answered() >= 10 })
	s.kill()
	s = start(t, dir)
	f.target.Store(&s.url)

	select {
	case err := <-ended:
		if err != nil {
			t.Fatalf("node: %v\n%s", err, stderr.String())
		}
	case <-time.After(2 * patience):
		t.Fatalf("node does not end\n%s", stderr.String())
	}
	var told struct{ Delivered, Failed, Retries int }
	if err := json.Unmarshal([]byte(stdout.String()), &told); err != nil {
		t.Fatalf("%v: %s", err, stdout.String())
	}
	if told.Delivered != 3*segmentCalls || told.Failed != 0 || told.Retries < 20 || f.spoiled(t) < 20 {
		t.Errorf("the client says %+v, the proxy spoiled %d answers\n%s", told, f.spoiled(t), stderr.String())
	}
	s.segmentCounted("Node%20Order")
	s.stop()
}

// segmentCounted checks what the calls of a client must come to. The users are sent in rollcall's own form as well: the estimate of
// their number is then the same to the last bit.
func (s *server) segmentCounted(order string) {
	s.t.Helper()
	var own strings.Builder
	for i := range segmentUsers {
		fmt.Fprintf(&own, `{"event":"own","user":"n%d"}`+"\n", i)
	}
	s.accepted("?wait=30s", own.String(), segmentUsers)
	_, users, _ := s.counts("own")
	for _, name := range []string{order, "page_view", "identify"} {
		s.counted(name, segmentCalls, users)
	}
	s.counted("*", 3*segmentCalls+segmentUsers, users)
	if users < segmentUsers-1 || users > segmentUsers+1 {
		s.t.Errorf("%d users, want %d", users, segmentUsers)
	}
}

// call posts to the Segment API, with the write key unless the headers say otherwise, and returns status and answer.
func (s *server) call(path, body string, header ...string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequest("POST", s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if len(header) == 0 {
		r.SetBasicAuth(s.key(writeName), "")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if !json.Valid(answer) {
		s.t.Errorf("POST %s: %d %s: no JSON", path, res.StatusCode, answer)
	}
	return res.StatusCode, string(answer)
}

func TestSegmentCalls(t *testing.T) {
	s := start(t, t.TempDir())
	f := func(path, body string, status int, says string, header ...string) {
		t.Helper()
		code, answer := s.call(path, body, header...)
		if code != status || !strings.Contains(answer, says) {
			t.Errorf("POST %s %.80s: %d %s\nwant %d and %s", path, body, code, answer, status, says)
		}
	}
	const one = `{"success":true,"received":1,"accepted":1,"duplicates":0,"applied":true,"rejected":[]}`
	key, none := s.key(writeName), []string{"X-None", "1"}
	withKey := func(body string) string { return `{"writeKey":"` + key + `",` + body[1:] }
	for path, event := range map[string]string{
		"track": "t", "page": "page_view", "screen": "screen_view", "identify": "identify", "alias": "alias", "group": "group",
	} {
		body := `{"event":"t","userId":"u","messageId":"` + path + `"}`
		f("/v1/"+path+"?wait=30s", body, 200, one)
		f("/v1/"+path+"?wait=30s", body, 200, `"accepted":0,"duplicates":1`)
		// The short form, with the key in the body as browsers send it.
		f("/v1/"+path[:1]+"?wait=30s", withKey(`{"event":"t","anonymousId":"v"}`), 200, one, none...)
		s.counted(event, 2, 2)
	}
	batch := `{"batch":[{"type":"track","event":"b","userId":"u"},{"type":"track","event":"b","userId":"null"}],"sentAt":"` + time.Now().UTC().Format(time.RFC3339) + `"}`
	f("/v1/batch?wait=30s", batch, 200, `{"success":true,"received":2,"accepted":1,"duplicates":0,"applied":true,"rejected":[{"index":1,"code":"placeholder_user","field":"userId"`)
	f("/v1/b?wait=30s", withKey(batch), 200, `"accepted":1`, none...)
	f("/v1/batch?wait=30s", zip(t, batch), 200, `"accepted":1`, "Authorization", "Bearer "+key, "Content-Encoding", "gzip")
	f("/v1/import?wait=30s&key="+key, batch, 200, `"accepted":1`, none...)
	f("/v1/batch?dry_run=1", batch, 200, `{"success":true,"received":2,"accepted":1,"dry_run":true`)
	s.counted("b", 4, 1)

	f("/v1/batch", `{"batch":[]}`, 200, `{"success":true,"received":0,"accepted":0,"rejected":[]}`)
	f("/v1/track", `{"userId":"u"}`, 422, `{"success":false,"received":1,"accepted":0,"rejected":[{"index":0,"code":"missing_event"`)
	f("/v1/batch", `{"batch":[{"type":"x"},{}]}`, 422, `"code":"bad_type","field":"type"`)
	f("/v1/batch", `{"batch":`, 400, `"code":"malformed_body"`)
	f("/v1/track", ``, 400, `"code":"empty_body"`)
	f("/v1/track", `{"event":"t"}`, 400, `"code":"bad_encoding"`, "Authorization", "Bearer "+key, "Content-Encoding", "gzip")
	f("/v1/track", `{"event":"t"}`, 415, `"code":"unsupported_encoding"`, "Authorization", "Bearer "+key, "Content-Encoding", "br")
	f("/v1/track", `{"event":"t"}`, 401, `"code":"key_missing"`, none...)
	f("/v1/track", `{"event":"t","writeKey":"rcw_nobody"}`, 401, `"code":"key_unknown"`, none...)
	f("/v1/track", withKey(`{"event":"t"}`), 401, `"code":"key_unknown"`, "Authorization", "Bearer rcw_nobody") // the header counts
	f("/v1/track?key="+s.key(readName), `{"event":"t"}`, 403, `"code":"key_scope"`, none...)
	f("/v1/track", `{"event":"t","writeKey":"`+s.key(readName)+`"}`, 403, `"code":"key_scope"`, none...)

	// History takes an admin key, in an import too.
	const old = `{"batch":[{"type":"page","userId":"u","timestamp":"2015-05-17T10:00:00Z"}]}`
	f("/v1/import", old, 422, `"code":"too_late","field":"timestamp"`)
	f("/v1/import?historical=1", old, 403, `"code":"key_scope"`)
	f("/v1/import?historical=1&wait=30s", old, 200, one, "Authorization", "Bearer "+s.key(adminName))
	if c := s.series("page_view", "2015-05-17", "2015-05-18"); c.Total.PV != 1 {
		t.Errorf("the import: %+v; want one page view", c)
	}
	s.stop()
}

// What is too large is refused with 413 and nothing of it is stored; a real client learns of it.
func TestSegmentTooLarge(t *testing.T) {
	s := start(t, t.TempDir(), "--limits.max_body", "64KiB", "--limits.max_events", "100")
	const n = 500
	var told outcome
	client, err := analytics.NewWithConfig(s.key(writeName), analytics.Config{
		Endpoint: s.url, BatchSize: n, Callback: &told, Logger: silent{}, RetryAfter: func(int) time.Duration { return time.Millisecond },
	})
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := client.Enqueue(analytics.Track{UserId: "u", Event: "big", Properties: analytics.NewProperties().Set("p", strings.Repeat("x", 200))}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the client has been told", func() bool { return told.good.Load()+told.bad.Load() == n })
	if told.bad.Load() != n || !strings.Contains(told.err.Error(), "413") {
		t.Errorf("%d succeeded, %d failed: %v; want all to fail with 413", told.good.Load(), told.bad.Load(), told.err)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	body := `{"batch":[` + strings.Repeat(`{"type":"track","event":"big"},`, 100) + `{"type":"page"}]}`
	if code, answer := s.call("/v1/batch", body); code != 413 || !strings.Contains(answer, `"code":"too_many_events"`) {
		t.Errorf("101 messages: %d %s", code, answer)
	}
	if code, answer := s.call("/v1/batch", zip(t, `{"batch":[`+strings.Repeat(" ", 1<<20)+`]}`), "Authorization", "Bearer "+s.key(writeName), "Content-Encoding", "gzip"); code != 413 ||
		!strings.Contains(answer, `"code":"body_too_large"`) {
		t.Errorf("a bomb: %d %s", code, answer)
	}
	s.accepted("?wait=30s", `{"event":"after"}`, 1)
	s.counted("*", 1, 0)
	s.stop()
}
