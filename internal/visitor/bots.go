package visitor

import (
	"slices"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	maxAgent     = 1024 // bytes of a user agent that are looked at
	defaultCache = 4096
)

// Bots tells bots from people by their user agents. Safe for concurrent use.
type Bots struct {
	robots []pattern // say of themselves that they are robots
	others []pattern // the rest of the list
	cache  *lru.Cache[string, verdict]
}

type verdict struct{ browser, elsewhere bool }

// NewBots keeps the verdicts of the last cache user agents (0 = 4,096), each of at most 1 KiB.
func NewBots(cache int) *Bots {
	if cache <= 0 {
		cache = defaultCache
	}
	patterns, err := parseList(isbotList)
	if err != nil {
		panic("visitor: isbot.txt: " + err.Error()) // part of the program, and tested
	}
	kept, err := lru.New[string, verdict](cache)
	if err != nil {
		panic("visitor: " + err.Error()) // only for a size below 1
	}
	b := &Bots{cache: kept}
	for _, p := range patterns {
		if slices.Contains(robots, p.source) {
			b.robots = append(b.robots, p)
		} else {
			b.others = append(b.others, p)
		}
	}
	return b
}

// Is reports whether a user agent is a bot's. An empty one is. browser says that the request can only come from a browser (a pixel, an Origin
// or a Sec-Fetch header): HTTP libraries are bots there. Elsewhere they are not, since servers and apps send events with them, as long as they
// neither look like a browser nor call themselves a robot. Only the first 1,024 bytes are looked at.
func (b *Bots) Is(userAgent string, browser bool) bool {
	if len(userAgent) > maxAgent {
		userAgent = userAgent[:maxAgent]
	}
	v, ok := b.cache.Get(userAgent)
	if !ok {
		v = b.judge(userAgent)
		b.cache.Add(strings.Clone(userAgent), v) // a clone, since the string may be a piece of a whole request
	}
	if browser {
		return v.browser
	}
	return v.elsewhere
}

func (b *Bots) judge(userAgent string) verdict {
	s := strings.ToLower(strings.TrimSpace(userAgent))
	if s == "" || found(b.robots, s) {
		return verdict{browser: true, elsewhere: true}
	}
	bot := found(b.others, s)
	dressed := strings.HasPrefix(s, "mozilla/") || strings.HasPrefix(s, "opera/")
	return verdict{browser: bot, elsewhere: bot && dressed}
}

func found(patterns []pattern, s string) bool {
	for i := range patterns {
		if patterns[i].match(s) {
			return true
		}
	}
	return false
}
