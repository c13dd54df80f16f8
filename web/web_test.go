package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/ingest"
	"github.com/rollcall/rollcall/ingest/drops"
	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/period"
	"github.com/rollcall/rollcall/internal/project"
	"github.com/rollcall/rollcall/internal/visitor"
	"github.com/rollcall/rollcall/web/api"
)

// rooms stands for ingest and counters: it keeps what it was asked and answers what the test wants.
type rooms struct {
	accept func(ingest.Request) (*ingest.Result, error)
	asked  ingest.Request
	body   string
	counts counters.CountsRequest
	drops  drops.Request
	fault  error
}

func (r *rooms) Accept(_ context.Context, q ingest.Request) (*ingest.Result, error) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return nil, apperr.New(apperr.Malformed, "unreadable", "x").With(err)
	}
	if q.Open != nil { // as ingest does: the key is in the body
		var b struct{ WriteKey string }
		if err := json.Unmarshal(body, &b); err != nil {
			return nil, apperr.New(apperr.Malformed, "malformed_body", "x").With(err)
		}
		if q, err = q.Open(b.WriteKey); err != nil {
			return nil, err
		}
	}
	r.asked, r.body = q, string(body)
	if r.accept != nil {
		return r.accept(q)
	}
	return &ingest.Result{Received: 1, Accepted: 1}, nil
}

func (r *rooms) Names(context.Context, string) (*counters.Names, error) {
	return &counters.Names{}, nil
}

func (r *rooms) Counts(_ context.Context, q counters.CountsRequest) (*counters.Counts, error) {
	r.counts = q
	if r.fault != nil {
		return nil, r.fault
	}
	return &counters.Counts{}, nil
}

type fixture struct {
	*Server
	dir   *project.Directory
	rooms *rooms
	log   *bytes.Buffer
	parts []api.Part
}

func newProject(t testing.TB, s project.Spec) *project.Project {
	t.Helper()
	s.Complete("UTC", clock.Duration(time.Hour))
	p, err := project.New(s, project.FromConfig, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newKey(secret, id string, scope project.Scope) *project.Key {
	return &project.Key{ID: secret, Project: id, Scope: scope, Sum: sha256.Sum256([]byte(secret)), Source: project.FromConfig}
}

func setUp(t testing.TB, level slog.Level, projects ...string) *fixture {
	t.Helper()
	if len(projects) == 0 {
		projects = []string{"demo"}
	}
	f := &fixture{rooms: &rooms{}, log: &bytes.Buffer{}, dir: project.NewDirectory(clock.System{})}
	var list []*project.Project
	for _, id := range projects {
		list = append(list, newProject(t, project.Spec{ID: id}))
	}
	f.dir.Configure(list, []*project.Key{
		newKey("rca_root", "", project.Admin),
		newKey("rcw_w", projects[0], project.Write),
		newKey("rcr_r", projects[0], project.Read),
		newKey("rca_one", projects[0], project.Admin),
	})
	f.Server = New(Options{
		API: api.Options{
			Ingest: f.rooms, Counts: f.rooms, Drops: f.rooms, Directory: f.dir, MaxBody: 1 << 20, Origins: []string{"*"},
			Bots: visitor.NewBots(100), Clock: clock.System{}, Zone: "UTC", Late: clock.Duration(time.Hour),
		},
		Version:   "test",
		Ready:     func(context.Context) []api.Part { return f.parts },
		ForIngest: func(part string) bool { return part == "journal" },
		Registry:  prometheus.NewRegistry(),
		Log:       slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: level})),
	})
	return f
}

func (f *fixture) do(method, url, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, url, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	f.engine.ServeHTTP(w, r)
	return w
}

// problem checks that an answer is a problem document with a status and a code, and returns its members.
func problem(t *testing.T, w *httptest.ResponseRecorder, status int, code string) map[string]any {
	t.Helper()
	var p map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("answer %d %q: %v", w.Code, w.Body, err)
	}
	if w.Code != status || p["code"] != code || p["status"] != float64(status) {
		t.Errorf("answer %d %s; want %d with code %s", w.Code, w.Body, status, code)
	}
	if ct := w.Header().Get("Content-Type"); ct != "application/problem+json" {
		t.Errorf("content type %q", ct)
	}
	if id := w.Header().Get("X-Request-Id"); id == "" || p["request_id"] != id {
		t.Errorf("request id %q in the header, %v in the body", id, p["request_id"])
	}
	return p
}

func TestKeysAndScopes(t *testing.T) {
	f := setUp(t, slog.LevelInfo)
	const send, ask = "/v1/events", "/v1/counts?event=a&from=2026-01-01&to=2026-01-02"
	ok := func(method, url, auth string, want int) {
		t.Helper()
		if w := f.do(method, url, "{}", "Authorization", auth); w.Code != want {
			t.Errorf("%s %s with %q = %d %s; want %d", method, url, auth, w.Code, w.Body, want)
		}
	}
	no := func(method, url, auth string, status int, code string) {
		t.Helper()
		problem(t, f.do(method, url, "{}", "Authorization", auth), status, code)
	}
	ok("POST", send, "Bearer rcw_w", 202)
	ok("POST", send, "bearer  rca_root", 202)
	ok("POST", send, "Bearer rca_one", 202)
	ok("POST", send, "Basic cmN3X3c6", 202) // rcw_w:
	ok("POST", send, "Basic cmN3X3c6cHc=", 202)
	ok("POST", send+"?key=rcw_w", "", 202)
	ok("POST", send+"?x=1&key=rcw%5Fw", "", 202)
	ok("GET", ask, "Bearer rcr_r", 200)
	ok("GET", ask, "Bearer rca_root", 200)
	ok("GET", ask+"&key=rcr_r", "", 200)

	no("POST", send, "", 401, "key_missing")
	no("POST", send, "Bearer", 401, "key_missing")
	no("POST", send, "Basic !!!", 401, "key_missing")
	no("POST", send, "Bearer rcw_W", 401, "key_unknown")
	no("POST", send, "Bearer "+strings.Repeat("x", 9000), 401, "key_unknown")
	no("POST", send+"?akey=rcw_w", "", 401, "key_missing")
	no("POST", send, "Bearer rcr_r", 403, "key_scope")
	no("GET", ask, "Bearer rcw_w", 403, "key_scope")
	no("POST", send+"?historical=1", "Bearer rcw_w", 403, "key_scope")
	no("POST", send+"?project=other", "Bearer rcw_w", 403, "key_scope")
	no("POST", send+"?project=other", "Bearer rca_root", 404, "project_unknown")
	ok("POST", send+"?project=demo", "Bearer rcw_w", 202)
}

func TestAdminKeyNamesTheProject(t *testing.T) {
	f := setUp(t, slog.LevelInfo, "a", "b")
	problem(t, f.do("POST", "/v1/events", "{}", "Authorization", "Bearer rca_root"), 422, "project_required")
	for _, h := range [][]string{{"/v1/events?project=b"}, {"/v1/events", "X-Rollcall-Project", "b"}} {
		w := f.do("POST", h[0], "{}", append(h[1:], "Authorization", "Bearer rca_root")...)
		if w.Code != 202 || f.rooms.asked.Project != "b" {
			t.Errorf("%v: answer %d, project %q; want 202, b", h, w.Code, f.rooms.asked.Project)
		}
	}
}

// Projects are named by the caller only where a key opens several. None but those of the configuration gets further.
func TestHL06_ProjectsThatAreNone(t *testing.T) {
	f := setUp(t, slog.LevelInfo, "a", "b")
	for _, id := range []string{"a}{b", "{}", "a:b", "a%", "A", "*", "a\x00", "a "} {
		named := url.QueryEscape(id)
		problem(t, f.do("POST", "/v1/events?project="+named, "{}", "Authorization", "Bearer rca_root"), 404, "project_unknown")
		problem(t, f.do("GET", "/v1/counts?event=e&project="+named, "", "Authorization", "Bearer rca_root"), 404, "project_unknown")
		problem(t, f.do("POST", "/v1/events?project="+named, "{}", "Authorization", "Bearer rcw_w"), 403, "key_scope")
	}
	problem(t, f.do("POST", "/v1/events?project=", "{}", "Authorization", "Bearer rca_root"), 422, "project_required")
	problem(t, f.do("GET", "/v1/counts?event=e&project=", "", "Authorization", "Bearer rca_root"), 422, "project_required")
	if f.rooms.asked.Project != "" || f.rooms.counts.Project != "" {
		t.Errorf("asked for %q and %q", f.rooms.asked.Project, f.rooms.counts.Project)
	}
}

func TestEventsPassesOnWhatWasAsked(t *testing.T) {
	f := setUp(t, slog.LevelInfo)
	w := f.do("POST", "/v1/events?wait=2s&historical=1&key=rca_root", `{"event":"a"}`, "Content-Encoding", "zstd", "Content-Type", "text/plain")
	if q := f.rooms.asked; w.Code != 202 || q.Wait != 2*time.Second || !q.Historical || q.ContentEncoding != "zstd" || f.rooms.body != `{"event":"a"}` {
		t.Errorf("answer %d, request %+v, body %q", w.Code, q, f.rooms.body)
	}
	if got := w.Body.String(); !json.Valid([]byte(got)) || !strings.Contains(got, `"received":1`) {
		t.Errorf("answer %s", got)
	}
	for _, wait := range []string{"31s", "-1s", "soon", "5"} {
		problem(t, f.do("POST", "/v1/events?key=rcw_w&wait="+wait, "{}"), 422, "bad_wait")
	}
	problem(t, f.do("POST", "/v1/events?key=rca_root&historical=maybe", "{}"), 422, "bad_flag")
}

func TestAllRejectedIs422WithTheSameBody(t *testing.T) {
	f := setUp(t, slog.LevelInfo)
	f.rooms.accept = func(ingest.Request) (*ingest.Result, error) {
		return &ingest.Result{Received: 2, Rejected: []ingest.Rejection{{Index: 0, Code: "too_late"}, {Index: 1, Code: "too_late"}}}, nil
	}
	w := f.do("POST", "/v1/events?key=rcw_w", "[]")
	if w.Code != 422 || w.Header().Get("Content-Type") != "application/json" || !strings.Contains(w.Body.String(), `"received":2`) {
		t.Errorf("answer %d %s %s", w.Code, w.Header(), w.Body)
	}
	page := f.do("GET", "/metrics", "").Body.String()
	for _, want := range []string{
		`rollcall_ingest_rejected_total{code="too_late",project="demo"} 2`, `rollcall_ingest_received_total{project="demo"} 2`,
		`rollcall_ingest_accepted_total{project="demo"} 0`, `rollcall_ingest_bots_total{project="demo"} 0`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("metrics lack %q", want)
		}
	}
}

func TestBodyLimit(t *testing.T) {
	f := setUp(t, slog.LevelInfo)
	over := strings.Repeat("x", 1<<20+1)
	p := problem(t, f.do("POST", "/v1/events?key=rcw_w", over), 413, "body_too_large")
	if p["limit"] != "1 MiB" || p["option"] != "limits.max_body" {
		t.Errorf("problem %v does not name limit and option", p)
	}
	// Without a length the guard is in the reader.
	r := httptest.NewRequest("POST", "/v1/events?key=rcw_w", io.MultiReader(strings.NewReader(over)))
	r.ContentLength = -1
	w := httptest.NewRecorder()
	f.engine.ServeHTTP(w, r)
	problem(t, w, 413, "body_too_large")
	if w := f.do("POST", "/v1/events?key=rcw_w", over[:1<<20]); w.Code != 202 {
		t.Errorf("a body of exactly the limit: %d", w.Code)
	}
}

func TestProblems(t *testing.T) {
	f := setUp(t, slog.LevelInfo)
	f.rooms.fault = apperr.New(apperr.Unavailable, "redis_away", "Later.").After(1500 * time.Millisecond).With(errors.New("hidden cause"))
	const ask = "/v1/counts?key=rcr_r&event=a&from=x&to=y"
	w := f.do("GET", ask, "")
	problem(t, w, 503, "redis_away")
	if got := w.Header().Get("Retry-After"); got != "2" {
		t.Errorf("Retry-After %q; want 2, rounded up", got)
	}
	f.rooms.fault = fmt.Errorf("dial secret-host: %w", errors.New("hidden cause"))
	w = f.do("GET", ask, "")
	p := problem(t, w, 500, "internal")
	if strings.Contains(w.Body.String(), "secret-host") || !strings.Contains(f.log.String(), "secret-host") || !strings.Contains(f.log.String(), p["request_id"].(string)) {
		t.Errorf("the cause belongs into the log under the request id, not into the answer: %s\n%s", w.Body, f.log)
	}
	problem(t, f.do("GET", "/nowhere", ""), 404, "url_unknown")
	w = f.do("DELETE", "/v1/events", "")
	problem(t, w, 405, "method_not_allowed")
	if w.Header().Get("Allow") != "POST, OPTIONS" {
		t.Errorf("Allow %q; want POST, OPTIONS", w.Header().Get("Allow"))
	}
}

func TestCountsPassesOnWhatWasAsked(t *testing.T) {
	f := setUp(t, slog.LevelInfo)
	ok := func(query, from, to, named string, interval period.Kind) {
		t.Helper()
		w := f.do("GET", "/v1/counts?key=rcr_r&event=%E9%98%85%E8%AF%BB"+query, "")
		q := f.rooms.counts
		if w.Code != 200 || q.Event != "阅读" || q.From != from || q.To != to || q.Period != named || q.Interval != interval || q.Zone != time.UTC {
			t.Errorf("%s: %d, asked for %+v; want %s to %s, %s by %s", query, w.Code, q, from, to, named, interval)
		}
	}
	ok("", "", "", "7d", period.Day)
	ok("&period=today&interval=hour", "", "", "today", period.Hour)
	ok("&from=2026-01-01&to=2026-02-01&interval=week", "2026-01-01", "2026-02-01", "", period.Week)
	ok("&from=2026-01-01T00:00:00%2B08:00", "2026-01-01T00:00:00+08:00", "", "", period.Day)
	problem(t, f.do("GET", "/v1/counts?key=rcr_r&event=a&interval=year", ""), 422, "bad_interval")
}

func TestCSVByNameOrByAccept(t *testing.T) {
	f := setUp(t, slog.LevelInfo)
	is := func(path, accept string, csv bool) {
		t.Helper()
		w := f.do("GET", path+"?key=rcr_r&event=a", "", "Accept", accept)
		if got := strings.HasPrefix(w.Body.String(), "label,from,to,pv,uv"); w.Code != 200 || got != csv || got != strings.HasPrefix(w.Header().Get("Content-Type"), "text/csv") {
			t.Errorf("%s with %q: %d %s %.40s; want CSV: %v", path, accept, w.Code, w.Header().Get("Content-Type"), w.Body, csv)
		}
	}
	is("/v1/counts", "", false)
	is("/v1/counts", "*/*", false)
	is("/v1/counts", "text/csv", true)
	is("/v1/counts", "Text/CSV;q=0.9, */*", true)
	is("/v1/counts", "application/json, text/csv", false)
	is("/v1/counts", "text/csv;q=0, application/json", false)
	is("/v1/counts", "text/csv; q=0.5", true)
	is("/v1/counts.csv", "application/json", true)
}

func TestPanicIsA500WithAStackInTheLog(t *testing.T) {
	f := setUp(t, slog.LevelInfo)
	f.rooms.accept = func(ingest.Request) (*ingest.Result, error) { panic("secret detail") }
	w := f.do("POST", "/v1/events?key=rcw_w", "{}")
	p := problem(t, w, 500, "internal")
	if strings.Contains(w.Body.String(), "secret") {
		t.Errorf("the answer shows the panic: %s", w.Body)
	}
	for _, want := range []string{"secret detail", "web_test.go", p["request_id"].(string)} {
		if !strings.Contains(f.log.String(), want) {
			t.Errorf("the log lacks %q", want)
		}
	}
	if f.inFlight.Load() != 0 {
		t.Errorf("%d requests in flight", f.inFlight.Load())
	}
}

func TestKeyInTheQueryIsNeverLogged(t *testing.T) {
	f := setUp(t, slog.LevelDebug)
	f.do("POST", "/v1/events?key=rcw_w", "{}")
	f.do("POST", "/v1/events?key=rcw_unknown", "{}")
	f.do("GET", "/v1/counts?key=rcr_r", "")
	f.do("GET", "/nowhere?key=rca_root", "")
	if strings.Count(f.log.String(), "msg=request ") != 4 {
		t.Errorf("want four requests in the log:\n%s", f.log)
	}
	for _, key := range []string{"rcw_", "rcr_", "rca_"} {
		if strings.Contains(f.log.String(), key) {
			t.Errorf("the log holds a key:\n%s", f.log)
		}
	}
}

func TestReadinessNamesWhatIsDown(t *testing.T) {
	f := setUp(t, slog.LevelInfo)
	want := func(url string, status int, parts ...string) {
		t.Helper()
		w := f.do("GET", url, "")
		if w.Code != status {
			t.Errorf("%s = %d %s; want %d", url, w.Code, w.Body, status)
		}
		for _, p := range parts {
			if !strings.Contains(w.Body.String(), p) {
				t.Errorf("%s = %s; want %s in it", url, w.Body, p)
			}
		}
	}
	f.parts = []api.Part{{Name: "journal", OK: true}, {Name: "redis", OK: true}}
	want("/readyz", 200, `"ready":true`)
	f.parts[1] = api.Part{Name: "redis", Detail: "connection refused"}
	want("/readyz", 503, `"ready":false`, `{"name":"redis","ok":false,"detail":"connection refused"}`)
	want("/readyz?for=ingest", 200, `"ready":true`, "connection refused")
	f.parts[0] = api.Part{Name: "journal", Detail: "full"}
	want("/readyz?for=ingest", 503)
	f.parts = nil
	f.NotReady()
	want("/readyz", 503, `"stopping":true`)
	want("/healthz", 200)
}

func TestME01_PathsOfScannersMakeNoSeries(t *testing.T) {
	f := setUp(t, slog.LevelInfo)
	page := func() string { return f.do("GET", "/metrics", "").Body.String() }
	page()
	before := strings.Count(page(), "\n")
	for i := range 10_000 {
		f.do("GET", fmt.Sprintf("/scan/%d.php", i), "")
	}
	for i := range 1000 {
		f.do("GET", fmt.Sprintf("/v1/boards/%d", i), "")
		f.do(fmt.Sprintf("VERB%d", i), "/v1/events", "")
		f.do("POST", fmt.Sprintf("/v1/events?key=%d", i), "{}")
	}
	after := page()
	if n := strings.Count(after, "\n"); n > before {
		t.Errorf("/metrics grew from %d to %d lines", before, n)
	}
	if !strings.Contains(after, `rollcall_http_requests_total{code="4xx",route="unmatched"} 12000`) {
		t.Error("the unmatched requests are not counted together")
	}
	routes := map[string]bool{}
	for line := range strings.SplitSeq(after, "\n") {
		if _, rest, ok := strings.Cut(line, `route="`); ok {
			name, _, _ := strings.Cut(rest, `"`)
			routes[name] = true
		}
	}
	known := map[string]bool{"unmatched": true, "OPTIONS": true}
	for _, r := range f.engine.Routes() {
		if r.Method != "HEAD" && r.Method != "OPTIONS" { // HEAD goes by the name of its GET, preflights all together
			known[r.Method+" "+r.Path] = true
		}
	}
	if !maps.Equal(routes, known) {
		t.Errorf("route labels %v; want %v", routes, known)
	}
}

// A client that holds half a request is cut at the end of the budget; a request in flight is answered.
func TestStopCutsOnlyWhatDoesNotEnd(t *testing.T) {
	f := setUp(t, slog.LevelInfo)
	entered, release := make(chan struct{}), make(chan struct{})
	f.rooms.accept = func(ingest.Request) (*ingest.Result, error) {
		close(entered)
		<-release
		return &ingest.Result{Received: 1, Accepted: 1}, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- f.Serve(l) }()

	slow, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	fmt.Fprintf(slow, "POST /v1/events?key=rcw_w HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
	answered := make(chan int, 1)
	go func() {
		res, err := http.Post("http://"+l.Addr().String()+"/v1/events?key=rcw_w", "", strings.NewReader("{}"))
		if err != nil {
			answered <- 0
			return
		}
		res.Body.Close()
		answered <- res.StatusCode
	}()
	<-entered
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- f.Stop(ctx) }()
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("a new connection was taken after the stop began")
	}
	close(release)
	if got := <-answered; got != 202 {
		t.Errorf("the request in flight got %d; want 202", got)
	}
	select {
	case err := <-stopped:
		t.Fatalf("stopped before the slow client was cut: %v", err)
	default:
	}
	cancel() // the budget ends
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := slow.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(slow); errors.Is(err, context.DeadlineExceeded) || strings.Contains(string(rest), " 202 ") {
		t.Errorf("the slow client got %q, %v; want to be cut", rest, err)
	}
}
