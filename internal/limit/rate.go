package limit

import (
	"math"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/clock"
)

// Bounds of a Rate's text.
const (
	maxCount = 1_000_000_000
	minPer   = time.Millisecond
	maxPer   = 31 * 24 * time.Hour
)

// Rate is Count in each Per on average, and at most Burst at once. The zero Rate is no limit; a Burst of 0 is Count.
//
// Its text is a count and a span, and the burst where it is not the count: "1000/s", "600/m", "10000/h", "5/d", "100/10s",
// "1000/s burst 5000". No limit is "none"; empty text is read as that too.
type Rate struct {
	Count int           // 1 to 1,000,000,000
	Per   time.Duration // 1 ms to 31 days
	Burst int           // 1 to 1,000,000,000
}

// IsZero tells that there is no limit.
func (r Rate) IsZero() bool { return r.Count <= 0 || r.Per <= 0 }

var units = []struct {
	name string
	per  time.Duration
}{{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour}}

// UnmarshalText reads a rate. An error is an apperr Invalid, bad_rate.
func (r *Rate) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	if s == "" || s == "none" {
		*r = Rate{}
		return nil
	}
	words := strings.Fields(s)
	if len(words) != 1 && (len(words) != 3 || words[1] != "burst") {
		return badRate(s, "has a form that can't be read")
	}
	count, span, ok := strings.Cut(words[0], "/")
	if !ok {
		return badRate(s, "has no span after a slash")
	}
	var v Rate
	if v.Count, ok = readCount(count); !ok {
		return badRate(s, "has a count that is no number from 1 to 1000000000")
	}
	if v.Per, ok = readPer(span); !ok {
		return badRate(s, "has a span that is none of s, m, h, d, nor a duration from 1ms to 31d")
	}
	v.Burst = v.Count
	if len(words) == 3 {
		if v.Burst, ok = readCount(words[2]); !ok {
			return badRate(s, "has a burst that is no number from 1 to 1000000000")
		}
	}
	*r = v
	return nil
}

func badRate(text, why string) error {
	if len(text) > 40 {
		text = text[:40] + "…"
	}
	return apperr.New(apperr.Invalid, "bad_rate",
		"The rate %q %s: write 1000/s, 600/m, 10000/h or 100/10s, with the most at once behind it where it differs (100/s burst 5000), or none.",
		strings.ToValidUTF8(text, "�"), why)
}

func readCount(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return int(n), err == nil && 1 <= n && n <= maxCount
}

func readPer(s string) (time.Duration, bool) {
	for _, u := range units {
		if s == u.name {
			return u.per, true
		}
	}
	var d clock.Duration
	if s == "" || d.UnmarshalText([]byte(s)) != nil {
		return 0, false
	}
	return time.Duration(d), minPer <= time.Duration(d) && time.Duration(d) <= maxPer
}

// String is the shortest text of the rate.
func (r Rate) String() string {
	if r.IsZero() {
		return "none"
	}
	s := strconv.Itoa(r.Count) + "/" + spanText(r.Per)
	if r.burst() != r.Count {
		s += " burst " + strconv.Itoa(r.burst())
	}
	return s
}

// spanText writes a span as in a rate's text.
func spanText(d time.Duration) string {
	for _, u := range units {
		if d == u.per {
			return u.name
		}
	}
	return clock.Duration(d).String()
}

// MarshalText is String.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// burst is the burst in force.
func (r Rate) burst() int {
	if r.Burst <= 0 {
		return r.Count
	}
	return r.Burst
}

func (r Rate) perSecond() rate.Limit { return rate.Limit(float64(r.Count) / r.Per.Seconds()) }

// span is how long the rate takes to give n tokens, in whole milliseconds, rounded up, but not for half a nanosecond: that is float
// arithmetic.
func (r Rate) span(n float64) time.Duration {
	ms := math.Ceil(n/float64(r.perSecond())*1000 - 0.5e-6)
	const most = math.MaxInt64 / int64(time.Millisecond)
	if ms >= float64(most) {
		return time.Duration(most) * time.Millisecond
	}
	return time.Duration(max(0, ms)) * time.Millisecond
}
