package clock

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration that may also be written in days: 7d, 1d12h.
type Duration time.Duration

// UnmarshalText reads "168h", "7d", "25s".
func (d *Duration) UnmarshalText(text []byte) error {
	s, days := string(text), time.Duration(0)
	if n, rest, ok := strings.Cut(s, "d"); ok {
		v, err := strconv.ParseUint(n, 10, 16)
		if err != nil {
			return errDuration
		}
		days, s = time.Duration(v)*24*time.Hour, rest
	}
	var v time.Duration
	if s != "" || days == 0 {
		var err error
		if v, err = time.ParseDuration(s); err != nil || v < 0 {
			return errDuration
		}
	}
	if days > math.MaxInt64-v {
		return errDuration
	}
	*d = Duration(days + v)
	return nil
}

var errDuration = errors.New("want a duration such as 25s, 168h or 7d")

// String writes whole hours as 168h, not as 168h0m0s.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalText is String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }
