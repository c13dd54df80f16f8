package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

func browserOffline(t *testing.T, browser context.Context) {
	s := newSite(t, browser, build{})
	b := s.open("/a")
	s.exactly(map[string]int64{"page_view": 1})
	failed := b.failures()
	b.offline(true)
	b.run(`rollcall("tunnel"); history.pushState({}, "", "/b")`)
	until(t, "two requests failed", func() bool { return failed() >= 2 })
	b.run(`window.later = setTimeout; window.setTimeout = () => 1`) // from the next failure on there is no try by time
	until(t, "three requests failed", func() bool { return failed() >= 3 })
	b.run(`rollcall("tunnel"); history.pushState({}, "", "/c")`)
	b.offline(false) // the event "online" alone sends now
	s.exactly(map[string]int64{"tunnel": 2, "page_view": 3})
	b.run(`setTimeout = later; rollcall("end")`)
	s.exactly(map[string]int64{"tunnel": 2, "page_view": 3, "end": 1})
}

func browserServerDown(t *testing.T, browser context.Context) {
	s := newSite(t, browser, build{})
	b := s.open("/a")
	b.run(`rollcall("down")`)
	s.exactly(map[string]int64{"page_view": 1, "down": 1})
	for range 2 {
		s.kill()
		failed := b.failures()
		b.run(`rollcall("down"); rollcall("down")`)
		until(t, "a request failed", func() bool { return failed() > 0 })
		b.run(`rollcall("down")`)
		s.server = start(t, s.dir, "--listen", strings.TrimPrefix(s.url, "http://"))
	}
	b.run(`rollcall("end")`)
	s.exactly(map[string]int64{"page_view": 1, "down": 7, "end": 1})
}

// What may be over by itself is tried again, with pauses; what is wrong is not.
func browserRetries(t *testing.T, browser context.Context) {
	s := newSite(t, browser, build{front: true, attributes: `data-auto="off"`})
	b := s.open("/a")
	s.front.answer(429, 503, 0)
	b.run(`rollcall("again")`)
	for n := 2; n < 4; n++ {
		until(t, fmt.Sprintf("try %d", n), func() bool { return len(s.front.seen()) >= n })
		b.run(`dispatchEvent(new Event("online"))`) // shortens the pause
	}
	s.exactly(map[string]int64{"again": 1})
	tries := s.front.seen()
	if len(tries) != 4 {
		t.Fatalf("%d tries; want 4", len(tries))
	}
	for i := range tries {
		if tries[i].Events[0].ID != tries[0].Events[0].ID {
			t.Error("the event has another id when it is sent again")
		}
	}
	if pause := tries[1].came.Sub(tries[0].came); pause < retryAfter {
		t.Errorf("sent again after %s; Retry-After was %s", pause, retryAfter)
	}
	for _, status := range []int{400, 401, 403, 413, 422} {
		n := len(s.front.seen())
		s.front.answer(status)
		b.run(`rollcall("wrong")`)
		until(t, "one more batch", func() bool { return len(s.front.seen()) > n })
	}
	b.run(`rollcall("end")`)
	s.exactly(map[string]int64{"again": 1, "end": 1})
	if n := len(s.front.events("wrong")); n != 5 {
		t.Errorf("events that were refused came %d times; want 5", n)
	}
}

func (f *front) largest() (n int) {
	for _, b := range f.seen() {
		n = max(n, b.size)
	}
	return n
}

// Far more than one request may carry, and more than may be in flight.
func browserBurst(t *testing.T, browser context.Context) {
	s := newSite(t, browser, build{front: true})
	b := s.open("/a")
	b.run(`for (let i = 0; i < 3000; i++) rollcall("burst", {text: "阅".repeat(330) + i}); rollcall("end")`)
	s.exactly(map[string]int64{"burst": 3000, "page_view": 1, "end": 1})
	if n, size := len(s.front.seen()), s.front.largest(); n < 3000*1024>>16 || size > 1<<16 {
		t.Errorf("%d batches of at most %d bytes; want none above 64 KiB", n, size)
	}
	if n := len(s.front.events("burst")); n != 3000 {
		t.Errorf("%d events came; want each once", n)
	}
}

// With a visitor id in storage, what could not be sent goes with the next page of the tab.
func browserKept(t *testing.T, browser context.Context) {
	s := newSite(t, browser, build{front: true, attributes: `data-visitor="session"`})
	b := s.open("/a")
	s.front.answer(503, 503)
	b.run(`for (let i = 0; i < 200; i++) rollcall("kept", {text: "x".repeat(1000)})`)
	until(t, "a request was refused", func() bool { return len(s.front.seen()) > 0 })
	b.do(chromedp.Navigate(s.pages + "/b"))
	b.run(`rollcall("end")`)
	s.exactly(map[string]int64{"kept": 200, "page_view": 2, "end": 1})
	s.counted("page_view", 2, 1)
	if left := b.text(`Object.keys(sessionStorage).join()`); left != "rollcall" {
		t.Errorf("the session holds %q; want the visitor alone", left)
	}
}

// The oldest events go when more wait than are kept.
func browserTooMany(t *testing.T, browser context.Context) {
	s := newSite(t, browser, build{attributes: `data-auto="off"`})
	b := s.open("/a")
	b.offline(true)
	b.run(`rollcall("first"); for (let i = 0; i < 5000; i++) rollcall("many", {text: "x".repeat(1000)}); rollcall("last")`)
	b.offline(false)
	s.exactly(map[string]int64{"first": 0, "last": 1})
	if n, _, ok := s.counts("many"); !ok || n < 3000 || n > 4<<20/1000 {
		t.Errorf("%d of the others were counted; want as many as fit in 4 MiB", n)
	}
}
