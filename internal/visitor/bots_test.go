package visitor

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

//go:embed testdata/agents.txt
var agentsFile string

type agent struct{ kind, text string }

func agents(t testing.TB) []agent {
	var all []agent
	for line := range strings.Lines(agentsFile) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		kind, text, ok := strings.Cut(line, "\t")
		if !ok || !slices.Contains([]string{"human", "bot", "library"}, kind) {
			t.Fatalf("agents.txt: %q", line)
		}
		all = append(all, agent{kind, text})
	}
	return all
}

func TestHT12_BotsAreNotPeople(t *testing.T) {
	b := NewBots(0)
	people, robots := 0, 0
	for _, ua := range []string{
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Mobile/15E148 Safari/604.1",
		"Mozilla/5.0 (Linux; Android 11; CUBOT KING KONG 5 Pro) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/124.0.0.0 Mobile Safari/537.36",
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/141.0.0.0 Safari/537.36",
		"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
		"",
	} {
		bot := b.Is(ua, true)
		if bot != b.Is(ua, false) {
			t.Errorf("%q: the modes differ", ua)
		}
		if bot {
			robots++
		} else {
			people++
		}
	}
	if people != 3 || robots != 3 {
		t.Errorf("%d people and %d bots, want 3 and 3 (2 and the empty one)", people, robots)
	}
}

func TestIs(t *testing.T) {
	b := NewBots(0)
	all := agents(t)
	if len(all) < 100 {
		t.Fatalf("only %d user agents", len(all))
	}
	for range 2 { // the second time from the cache
		for _, a := range all {
			if got, want := b.Is(a.text, true), a.kind != "human"; got != want {
				t.Errorf("in a browser: %v, want %v: %s", got, want, a.text)
			}
			if got, want := b.Is(a.text, false), a.kind == "bot"; got != want {
				t.Errorf("elsewhere: %v, want %v: %s", got, want, a.text)
			}
		}
	}
	for _, blank := range []string{"", " ", "\t \r\n"} {
		if !b.Is(blank, true) || !b.Is(blank, false) {
			t.Errorf("%q is a person", blank)
		}
	}
}

// What our own clients send, and what they send it with.
func TestIsServers(t *testing.T) {
	b := NewBots(0)
	for _, ua := range []string{
		"rollcall/1.2", "checkout-server/1.4", "feed-service", "AppEngine-Google; (+http://code.google.com/appengine; appid: s~shop)", "monitor/2",
		"com.example.shop/4.2 (iPhone; iOS 18.6; Scale/3.00)", "Shop/7 okhttp/4.12.0", "Proxy/1.0 (+https://shop.example/contact)",
	} {
		if b.Is(ua, false) {
			t.Errorf("%q can't send events", ua)
		}
	}
}

func TestIsCutsLongAgents(t *testing.T) {
	b := NewBots(2)
	long := "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36 " + strings.Repeat("x", 2000)
	if b.Is(long+"Googlebot/2.1", true) {
		t.Error("read beyond the limit")
	}
	if !b.Is("Googlebot/2.1 "+long, true) {
		t.Error("didn't read up to the limit")
	}
	for i := range 100 {
		b.Is(fmt.Sprint(i, long), false)
	}
	if n := b.cache.Len(); n != 2 {
		t.Errorf("%d verdicts kept, want 2", n)
	}
	for _, ua := range b.cache.Keys() {
		if len(ua) > maxAgent {
			t.Errorf("kept %d bytes", len(ua))
		}
	}
}

func TestIsIsConcurrencySafe(t *testing.T) {
	b := NewBots(10)
	all := agents(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, a := range all {
				if got := b.Is(a.text, false); got != (a.kind == "bot") {
					t.Errorf("%v for %s", got, a.text)
				}
			}
		})
	}
	wg.Wait()
}

// Every robots' pattern must still be in the list after a refresh, and every line of it be understood.
func TestList(t *testing.T) {
	patterns, err := parseList(isbotList)
	if err != nil {
		t.Fatal(err)
	}
	if len(patterns) < 200 {
		t.Errorf("%d patterns, want more than 200", len(patterns))
	}
	for _, want := range robots {
		if !slices.ContainsFunc(patterns, func(p pattern) bool { return p.source == want }) {
			t.Errorf("%s is not in the list", want)
		}
	}
	escaped := regexp.MustCompile(`\\.`)
	for _, p := range patterns {
		if bare := escaped.ReplaceAllString(p.source, ""); bare != strings.ToLower(bare) {
			t.Errorf("%s never matches, user agents are compared in lower case", p.source)
		}
	}
}

func TestPattern(t *testing.T) {
	f := func(source, s string, want bool) {
		t.Helper()
		p, err := parsePattern(source)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.match(s); got != want {
			t.Errorf("%s on %q: %v, want %v", source, s, got, want)
		}
	}
	f(`crawl`, "a crawler", true)
	f(`crawl`, "craw ler", false)
	f(`\.com\b`, "x.com/", true)
	f(`\.com\b`, "x.community", false)
	f(`^php`, "php/8", true)
	f(`^php`, "a php", false)
	f(`^ps_daily/\d`, "ps_daily/1", true)
	f(`^ps_daily/\d`, "ps_daily/x", false)
	f(`^ps_daily/\d`, "a ps_daily/1", false)
	f(`(?<! cu)bots?(?:\b|_)`, "mybot/1", true)
	f(`(?<! cu)bots?(?:\b|_)`, "android; cubot p40", false)
	f(`(?<! cu)bots?(?:\b|_)`, "android; cubot p40 googlebot/2", true)
	f(`(?<! cu)bots?(?:\b|_)`, "bottle", false)
	f(`(?<! channel/|google/)google(?!(?:wv|app|/google| pixel))`, "feedfetcher-google; (", true)
	f(`(?<! channel/|google/)google(?!(?:wv|app|/google| pixel))`, "android; google pixel 8", false)
	f(`(?<! channel/|google/)google(?!(?:wv|app|/google| pixel))`, "x channel/googleplay", false)
	f(`(?<! channel/|google/)google(?!(?:wv|app|/google| pixel))`, "google/google/sdk", false)
	f(`java(?!;)`, "u; java; x", false)
	f(`java(?!;)`, "u; java; java/17", true)
	f(`(?:^|[^g])news(?!sapphire)`, "news", true)
	f(`(?:^|[^g])news(?!sapphire)`, "gnews", false)
	f(`(?:^|[^g])news(?!sapphire)`, " newssapphire", false)

	for _, bad := range []string{`(?<!a.)b`, `a(?!b+)`, `a(?!b)c`, `(?<!a`, `(a`, `a(?=b)`, `(?<=a)b`, `a(?!)`} {
		if p, err := parsePattern(bad); err == nil {
			t.Errorf("%s was read as %+v", bad, p)
		}
	}
}
