package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// agent is how Chromium introduces itself: as a headless one it would be a bot.
const agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"

// chromium starts a headless Chromium, which ends with the test.
func chromium(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v (scripts/need.sh chromium installs it)", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserAgent(agent))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	all, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	browser, closed := chromedp.NewContext(all)
	t.Cleanup(closed)
	if err := chromedp.Do(browser); err != nil {
		t.Fatalf("starting %s: %v", path, err)
	}
	return browser
}

// site is a web site whose every page has the script, and the rollcall that counts it: two origins.
type site struct {
	*server
	t       *testing.T
	pages   string          // URL of the site
	front   *front          // before rollcall, if asked for
	profile context.Context // a browser profile of its own, with a tab that stays empty
}

// build is what differs between sites.
type build struct {
	attributes string // of the script's tag, beside src and data-key
	head       string // HTML before it
	front      bool
}

func newSite(t *testing.T, browser context.Context, b build) *site {
	t.Helper()
	s := &site{server: start(t, t.TempDir()), t: t}
	host := s.url
	if b.front {
		s.front = newFront(t, s.url)
		host = s.front.URL
	}
	html := fmt.Sprintf(`<!doctype html><meta charset="utf-8"><title>x</title>%s<script async src="%s/rollcall.js" data-key="%s" %s></script>`,
		b.head, host, s.key(writeName), b.attributes)
	pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/favicon.ico" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, html) // a browser that goes away is part of the test
	}))
	t.Cleanup(pages.Close)
	s.pages = strings.Replace(pages.URL, "127.0.0.1", "localhost", 1)
	var closed context.CancelFunc
	s.profile, closed = chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(closed)
	if err := chromedp.Do(s.profile); err != nil {
		t.Fatal(err)
	}
	return s
}

// exactly waits until each event has been counted as often as wanted, and then for what may come on top.
func (s *site) exactly(want map[string]int64) {
	s.t.Helper()
	for event, pv := range want {
		until(s.t, fmt.Sprintf("%s counted %d times", event, pv), func() bool {
			n, _, ok := s.counts(event)
			return ok && n >= pv
		})
	}
	s.accepted("?wait=30s", `{"event":"marker"}`, 1) // answered when everything before it is counted
	for event, pv := range want {
		if n, _, ok := s.counts(event); !ok || n != pv {
			s.t.Errorf("%s: PV %d; want %d", event, n, pv)
		}
	}
}

// tab is a tab of a site's profile.
type tab struct {
	t   *testing.T
	ctx context.Context
}

func (s *site) tab() *tab {
	s.t.Helper()
	ctx, closed := chromedp.NewContext(s.profile)
	s.t.Cleanup(closed)
	b := &tab{s.t, ctx}
	if err := chromedp.Do(ctx); err != nil { // the tab lives as long as this context
		s.t.Fatal(err)
	}
	if err := chromedp.Listen(ctx, func(ev any) {
		if e, ok := ev.(*runtime.EventExceptionThrown); ok {
			s.t.Errorf("the page throws: %v", e.ExceptionDetails.Exception)
		}
	}); err != nil {
		s.t.Fatal(err)
	}
	return b
}

// open is a new tab with a page of the site. The script has run.
func (s *site) open(path string) *tab {
	s.t.Helper()
	b := s.tab()
	b.do(chromedp.Navigate(s.pages + path))
	b.until("window.rollcall && rollcall.version")
	return b
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// run runs a script in the page.
func (b *tab) run(js string, a ...any) {
	b.t.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(js, a...)))
}

// until polls an expression. While a page makes room for the next one there is nothing to ask.
func (b *tab) until(js string) {
	b.t.Helper()
	until(b.t, js, func() bool {
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		defer cancel()
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+js+")"))
		return err == nil && is
	})
}

// text is the value of an expression.
func (b *tab) text(js string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[string](js))
	if err != nil {
		b.t.Fatalf("%s: %v", js, err)
	}
	return v
}

// close closes the tab as its user does.
func (b *tab) close() {
	b.t.Helper()
	if err := chromedp.Cancel(b.ctx); err != nil {
		b.t.Fatal(err)
	}
}

// offline takes the network away from the tab, or gives it back.
func (b *tab) offline(is bool) {
	b.t.Helper()
	conditions := []*network.Conditions{}
	if is {
		conditions = append(conditions, &network.Conditions{Offline: true, DownloadThroughput: -1, UploadThroughput: -1})
	}
	b.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, network.EmulateNetworkConditionsByRule, network.EmulateNetworkConditionsByRuleParams{MatchedNetworkConditions: conditions})
		if err == nil {
			_, err = chromedp.Call(ctx, network.OverrideNetworkState, network.OverrideNetworkStateParams{Offline: is, DownloadThroughput: -1, UploadThroughput: -1})
		}
		return err
	}))
}

// failures counts the requests of the tab that fail from now on.
func (b *tab) failures() func() int {
	b.t.Helper()
	var mu sync.Mutex
	var n int
	if err := chromedp.Listen(b.ctx, func(ev any) {
		if _, ok := ev.(*network.EventLoadingFailed); ok {
			mu.Lock()
			n++
			mu.Unlock()
		}
	}); err != nil {
		b.t.Fatal(err)
	}
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// sent is an event as the script sends it.
type sent struct {
	ID, Event, User string
	TS              int64
	Value           *float64
	Props           map[string]any
}

// batch is a request of the script.
type batch struct {
	SentAt int64 `json:"sent_at"`
	Events []sent
	query  string
	header http.Header
	size   int
	came   time.Time
}

// front stands before rollcall: it keeps what comes and may answer itself.
type front struct {
	*httptest.Server
	t       *testing.T
	pass    http.Handler // to rollcall
	mu      sync.Mutex
	batches []batch
	answers []http.HandlerFunc // to the next batches, which rollcall then does not see
}

func newFront(t *testing.T, rollcall string) *front {
	to, err := url.Parse(rollcall)
	if err != nil {
		t.Fatal(err)
	}
	f := &front{t: t, pass: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			if answer := f.keep(r); answer != nil {
				w.Header().Set("Access-Control-Allow-Origin", "*")
				w.Header().Set("Access-Control-Expose-Headers", "Retry-After")
				answer(w, r)
				return
			}
		}
		f.pass.ServeHTTP(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *front) keep(r *http.Request) (answer http.HandlerFunc) {
	body, err := io.ReadAll(r.Body)
	b := batch{query: r.URL.RawQuery, header: r.Header, size: len(body), came: time.Now()}
	if err == nil {
		err = json.Unmarshal(body, &b)
	}
	if err != nil {
		f.t.Errorf("%s %.200q: %v", r.URL, body, err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.batches = append(f.batches, b)
	if len(f.answers) > 0 {
		answer, f.answers = f.answers[0], f.answers[1:]
	}
	return answer
}

// seen is every batch until now.
func (f *front) seen() []batch {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.batches[:len(f.batches):len(f.batches)]
}

// events are all of a name, as they happened.
func (f *front) events(name string) (all []sent) {
	for _, b := range f.seen() {
		for _, e := range b.Events {
			if e.Event == name {
				all = append(all, e)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b sent) int { return cmp.Compare(a.TS, b.TS) })
	return all
}

// answer is what the next batches get instead of rollcall's answer. Status 0 is an answer that gets lost: rollcall has the batch.
func (f *front) answer(statuses ...int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, status := range statuses {
		f.answers = append(f.answers, func(w http.ResponseWriter, r *http.Request) {
			switch status {
			case 0:
				f.pass.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			case http.StatusTooManyRequests:
				w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
			}
			w.WriteHeader(status)
		})
	}
}

const retryAfter = 4 * time.Second // longer than the first pause of the script
