package main

import (
	"context"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// The page at /docs in a real browser: its policy lets its own style in, it has a light and a dark side, and nothing sticks out on a phone.
func TestDocsInABrowser(t *testing.T) {
	s := start(t, t.TempDir())
	ctx, cancel := context.WithTimeout(chromium(t), patience)
	defer cancel()
	text := func(js string) string {
		t.Helper()
		v, err := chromedp.Run(ctx, chromedp.Evaluate[string](js))
		if err != nil {
			t.Fatalf("%s: %v", js, err)
		}
		return v
	}
	paper := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
		if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, media); err != nil {
			t.Fatal(err)
		}
		for _, width := range []int64{320, 390, 1024, 1440} {
			if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, 800), chromedp.Navigate(s.url+"/docs"),
				chromedp.Evaluate[chromedp.Void]("for (const d of document.querySelectorAll('details')) d.open = true")); err != nil {
				t.Fatal(err)
			}
			if out := text("document.documentElement.scrollWidth > innerWidth ? 'too wide' : ''"); out != "" {
				t.Errorf("%s at %d pixels: %s", scheme, width, out)
			}
			nav := text("getComputedStyle(document.querySelector('nav.side')).display")
			if small := width < 900; small != (nav == "none") {
				t.Errorf("at %d pixels the side is %q", width, nav)
			}
		}
		paper[scheme] = text("getComputedStyle(document.body).backgroundColor")
	}
	if paper["light"] != "rgb(255, 255, 255)" || paper["dark"] != "rgb(16, 20, 28)" {
		t.Errorf("paper: %v; want white, and dark", paper)
	}
	s.stop()
}
