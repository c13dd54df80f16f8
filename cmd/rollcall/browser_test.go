package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// The script in a real browser, on a page of another origin, against the real program.
func TestBrowser(t *testing.T) {
	browser := chromium(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, context.Context)
	}{
		{"views", browserViews},
		{"views without the navigation API", browserOldViews},
		{"back-forward cache", browserBackForwardCache},
		{"prerendering", browserPrerendering},
		{"hash", browserHash},
		{"off", browserOff},
		{"before the script", browserEarly},
		{"what is sent", browserContent},
		{"visitors", browserVisitors},
		{"offline", browserOffline},
		{"server down", browserServerDown},
		{"retries", browserRetries},
		{"closed tabs", browserClosedTabs},
		{"closed tabs without keepalive", browserBeacon},
		{"burst", browserBurst},
		{"kept in the session", browserKept},
		{"too many", browserTooMany},
	} {
		if !t.Run(c.name, func(t *testing.T) { c.test(t, browser) }) && browser.Err() != nil {
			t.Fatal("Chromium has ended")
		}
	}
}

func pages(f *front) (all []string) {
	for _, e := range f.events("page_view") {
		all = append(all, fmt.Sprint(e.Props["page"]))
	}
	return all
}

func (s *site) saw(want ...string) {
	s.t.Helper()
	s.exactly(map[string]int64{"page_view": int64(len(want)), "end": 1})
	if got := pages(s.front); !slices.Equal(got, want) {
		s.t.Errorf("page views of %q; want %q", got, want)
	}
}

func browserViews(t *testing.T, browser context.Context) {
	s := newSite(t, browser, build{front: true})
	b := s.open("/a?q=1")
	b.do(chromedp.Reload())
	b.run(`history.pushState({}, "", "/b")`)
	b.run(`history.pushState({}, "", "/b?q=2"); history.replaceState({n: 1}, "")`) // the same page
	b.run(`history.replaceState({}, "", "/c")`)
	b.run(`history.back()`)
	b.until(`location.pathname == "/b"`)
	b.run(`history.back()`)
	b.until(`location.pathname == "/a"`)
	b.run(`history.forward()`)
	b.until(`location.pathname == "/b"`)
	b.run(`location.hash = "#top"`)
	b.run(`navigation.addEventListener("navigate", (e) => e.intercept()); navigation.navigate("/d")`)
	b.until(`location.pathname == "/d"`)
	b.run(`rollcall("end")`)
	s.saw("/a", "/a", "/b", "/c", "/b", "/a", "/b", "/d")
}

// Safari and Firefox have had no navigation API for long.
func browserOldViews(t *testing.T, browser context.Context) {
	s := newSite(t, browser, build{front: true, head: `<script>Object.defineProperty(window, "navigation", {value: undefined})</script>`})
	b := s.open("/a")
	b.run(`history.pushState({}, "", "/b"); history.pushState({}, "", "/b?q=2"); history.replaceState({}, "", "/c")`)
	b.run(`history.go(-2)`)
	b.until(`location.pathname == "/a"`)
	b.run(`location.hash = "#top"; rollcall("end")`)
	s.saw("/a", "/b", "/c", "/a")
}

func browserBackForwardCache(t *testing.T, browser context.Context) {
	s := newSite(t, browser, build{front: true})
	b := s.open("/a")
	b.run(`window.kept = 1; location.href = "/b"`)
	b.until(`location.pathname == "/b" && rollcall.version`)
	b.run(`window.kept = 2; history.back()`)
	b.until(`location.pathname == "/a" && window.kept == 1`)
	b.run(`history.forward()`)
	b.until(`location.pathname == "/b" && window.kept == 2`)
	b.run(`rollcall("end")`)
	s.saw("/a", "/b", "/a", "/b")
}

// Pages that Chromium prepares count when they are shown, and only then. It prepares none for a page that a debugger drives, so
// the pages drive themselves, and talk to the test by localStorage.
func browserPrerendering(t *testing.T, browser context.Context) {
	s := newSite(t, browser, build{front: true, head: `<script>
		window.rollcall = window.rollcall || function () { (rollcall.q = rollcall.q || []).push(arguments) };
		const is = (what) => new Promise((done) => { const look = () => what() ? done() : setTimeout(look, 20); look() });
		rollcall(location.pathname.slice(1));
		addEventListener("load", async () => {
			if (document.prerendering) localStorage[location.pathname] = "ready";
			if (location.pathname == "/first") {
				await is(() => localStorage["/next"] && localStorage["/never"]);
				rollcall("both");
				await is(() => localStorage.go);
				location.href = "/next";
			}
		});
		document.addEventListener("prerenderingchange", () => rollcall("end"));
		</script><script type="speculationrules">
		{"prerender": [{"source": "list", "urls": ["/next", "/never"], "eagerness": "immediate"}]}</script>`})
	b := s.open("/control")
	b.run(`window.open("/first", "_blank", "noopener")`)
	s.exactly(map[string]int64{"control": 1, "first": 1, "both": 1, "next": 0, "never": 0, "page_view": 2})
	b.run(`localStorage.go = 1`)
	s.saw("/control", "/first", "/next")
	s.exactly(map[string]int64{"next": 1, "never": 0})
	if views := s.front.events("page_view"); views[2].TS < s.front.events("both")[0].TS {
		t.Error("the view of /next has the time at which it was prepared; want that at which it was shown")
	}
}

func browserHash(t *testing.T, browser context.Context) {
	s := newSite(t, browser, build{front: true, attributes: `data-hash="on"`})
	b := s.open("/a#/one")
	b.run(`location.hash = "/two"`)
	b.until(`location.hash == "#/two"`)
	b.run(`history.back()`)
	b.until(`location.hash == "#/one"`)
	b.run(`rollcall("end")`)
	s.saw("/a#/one", "/a#/two", "/a#/one")
}

// Without automatic views, and with the script twice on the page.
func browserOff(t *testing.T, browser context.Context) {
	s := newSite(t, browser, build{front: true, attributes: `data-auto="off"`})
	b := s.open("/a")
	b.run(`history.pushState({}, "", "/b")`)
	b.run(`const tag = document.querySelector("script[data-key]"), again = document.createElement("script");
		again.src = tag.src; again.dataset.key = tag.dataset.key; again.onload = () => window.twice = 1; document.head.append(again)`)
	b.until(`window.twice`)
	b.run(`history.pushState({}, "", "/c"); rollcall("page_view"); rollcall("page_view", {page: "/mine", n: 1}); rollcall("end")`)
	s.saw("/c", "/mine")
}

// What a page calls before the script has come is kept.
func browserEarly(t *testing.T, browser context.Context) {
	s := newSite(t, browser, build{head: `<script>window.rollcall=window.rollcall||function(){(rollcall.q=rollcall.q||[]).push(arguments)};
		const stub = rollcall; rollcall("$user", "u7"); rollcall("early", {n: 1}); rollcall("early", {n: 2})</script>`})
	b := s.open("/a")
	b.run(`stub("early", {n: 3})`) // through a copy of the stub
	s.counted("early", 3, 1)
	s.counted("page_view", 1, 1)
}

// The events as they come, and that rollcall takes every one.
func browserContent(t *testing.T, browser context.Context) {
	s := newSite(t, browser, build{front: true, attributes: `data-user="u1"`})
	long := "/" + strings.Repeat("%E9%98%85", 120) // 1,081 bytes
	b := s.open(long)
	b.run(`document.cookie = "secret=1"; location.href = "/two?secret=2#secret=3"`)
	b.until(`location.pathname == "/two" && rollcall.version`)
	b.run(`rollcall("buy", {plan: "pro", text: "x" + "阅".repeat(400), n: 1.5, yes: true, none: null, list: [1, 2], bad: "a\ud83d"},
		{value: 12.5, id: "order-1", user: 9007199254740993n, ts: Date.now()});
		rollcall("buy", {}, {id: "order-1"}); rollcall("$user", 0); rollcall("zero"); rollcall("$user", null); rollcall("nobody");
		rollcall("big", {n: 1n}); rollcall("fine", {}, {value: 1n}); rollcall(); rollcall("end")`)
	s.exactly(map[string]int64{"buy": 1, "zero": 1, "nobody": 1, "big": 1, "fine": 0, "page_view": 2, "end": 1})
	views := s.front.events("page_view")
	if got := fmt.Sprint(views[0].Props["page"]); got != long[:1024] || views[0].Props["referrer"] != nil {
		t.Errorf("the first page is %q (%d bytes), referrer %v; want it cut to 1,024 bytes, and none", got, len(got), views[0].Props["referrer"])
	}
	if got := fmt.Sprint(views[1].Props); got != "map[page:/two]" {
		t.Errorf("the second view: %s; want its page alone, for it was reached from the same site", got)
	}
	buy := s.front.events("buy")[0].Props
	want := map[string]any{"plan": "pro", "text": "x" + strings.Repeat("阅", 341), "n": 1.5, "yes": true, "list": "[1,2]", "bad": "a\ufffd"}
	if fmt.Sprint(buy) != fmt.Sprint(want) {
		t.Errorf("props %v; want %v", buy, want)
	}
	ids := map[string]bool{}
	users := map[string]string{}
	for _, c := range s.front.seen() {
		if c.query != "key="+s.key(writeName) || c.header.Get("Content-Type") != "text/plain;charset=UTF-8" || c.header.Get("Cookie") != "" ||
			strings.Contains(c.header.Get("Referer"), "two") {
			t.Errorf("a batch came with ?%s and %v", c.query, c.header)
		}
		if age := time.Since(time.UnixMilli(c.SentAt)); age < 0 || age > patience {
			t.Errorf("sent_at is %s ago", age)
		}
		for _, e := range c.Events {
			if age := c.SentAt - e.TS; e.Event != "buy" && (age < 0 || age > patience.Milliseconds()) {
				t.Errorf("%s happened %d ms before it was sent", e.Event, age)
			}
			if e.ID != "order-1" && (len(e.ID) != 32 || strings.Trim(e.ID, "0123456789abcdef") != "" || ids[e.ID]) {
				t.Errorf("%s has the id %q; want 128 random bits", e.Event, e.ID)
			}
			ids[e.ID] = true
			if _, ok := users[e.Event]; !ok {
				users[e.Event] = e.User
			}
			if e.Event == "buy" && len(e.Props) > 0 && (e.Value == nil || *e.Value != 12.5) {
				t.Errorf("value %v; want 12.5", e.Value)
			}
		}
	}
	got := []string{users["page_view"], users["buy"], users["zero"], users["nobody"]}
	if want := []string{"u1", "9007199254740993", "0", ""}; !slices.Equal(got, want) {
		t.Errorf("users %q; want %q", got, want)
	}
}

func browserVisitors(t *testing.T, browser context.Context) {
	for _, c := range []struct {
		attributes string
		uv         int64 // of two tabs, one of which is loaded again
	}{{"", 0}, {`data-visitor="session"`, 2}, {`data-visitor="local"`, 1}} {
		s := newSite(t, browser, build{attributes: c.attributes})
		b := s.open("/a")
		b.do(chromedp.Reload())
		second := s.open("/a")
		s.counted("page_view", 3, c.uv)
		if stored := second.text(`document.cookie + Object.keys(localStorage) + Object.keys(sessionStorage)`); (stored == "") != (c.uv == 0) {
			t.Errorf("%s: cookies and storage hold %q", c.attributes, stored)
		}
		s.stop()
	}
}

func browserClosedTabs(t *testing.T, browser context.Context) {
	closedTabs(t, browser, "", "fetch keepalive:true credentials:omit")
}

// A browser without keepalive (Firefox before 133) sends its last events by sendBeacon.
func browserBeacon(t *testing.T, browser context.Context) {
	closedTabs(t, browser, "delete Request.prototype.keepalive;", "sendBeacon")
}

// closedTabs closes tabs right after events, which must come by the way that is wanted.
func closedTabs(t *testing.T, browser context.Context, first, want string) {
	s := newSite(t, browser, build{head: `<script>` + first + `
		const send = navigator.sendBeacon, get = fetch;
		navigator.sendBeacon = function () { localStorage.way = "sendBeacon"; return send.apply(this, arguments) };
		fetch = function (url, o) {
			localStorage.way = "fetch keepalive:" + o.keepalive + " credentials:" + o.credentials;
			return get.apply(this, arguments);
		}</script>`})
	const n = 5
	for range n {
		b := s.open("/a")
		b.run(`for (let i = 0; i < 40; i++) rollcall("bye", {text: "x".repeat(1000)})`)
		b.close()
	}
	s.exactly(map[string]int64{"bye": 40 * n, "page_view": n})
	if way := s.open("/b").text(`localStorage.way`); way != want {
		t.Errorf("the last events went by %q; want %q", way, want)
	}
}
