package config

import (
	"fmt"
	"math"
	"net/url"
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

var errDuration = fmt.Errorf("want a duration such as 25s, 168h or 7d")

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

// Size is a number of bytes, written as 8388608, 8MiB or 16GB.
type Size int64

var units = []struct {
	name string
	size int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"kB", 1e3}, {"B", 1},
}

// UnmarshalText reads a whole number with an optional unit.
func (s *Size) UnmarshalText(text []byte) error {
	t, unit := strings.TrimSpace(string(text)), int64(1)
	for _, u := range units {
		if n, ok := strings.CutSuffix(t, u.name); ok {
			t, unit = strings.TrimSpace(n), u.size
			break
		}
	}
	n, err := strconv.ParseInt(t, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return fmt.Errorf("want a size such as 8MiB or 16GiB")
	}
	*s = Size(n * unit)
	return nil
}

// String uses the largest unit that divides the size.
func (s Size) String() string {
	for _, u := range units[:4] {
		if s != 0 && int64(s)%u.size == 0 {
			return strconv.FormatInt(int64(s)/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// MarshalText is String.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Secret is a URL that may hold a password. It prints with the password hidden; string(s) is the real thing.
type Secret string

// String hides the password, or everything if the value is no URL.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	u, err := url.Parse(string(s))
	if err != nil || u.Scheme == "" {
		return "***"
	}
	shown := u.Scheme + "://"
	if u.User != nil {
		shown += "***@"
	}
	shown += u.Host + u.EscapedPath()
	if u.RawQuery != "" {
		shown += "?***"
	}
	return shown
}

// GoString and MarshalText hide the password as well.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// MarshalText is String.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
