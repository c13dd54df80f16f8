package config

import (
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"

	"github.com/rollcall/rollcall/internal/clock"
)

// Duration is a time.Duration that may also be written in days: 7d, 1d12h.
type Duration = clock.Duration

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

// List is texts that are written with commas between, or as a list in the file.
type List []string

// UnmarshalText cuts at commas. Spaces around an entry and empty entries are left out.
func (l *List) UnmarshalText(text []byte) error {
	*l = nil
	for s := range strings.SplitSeq(string(text), ",") {
		if s = strings.TrimSpace(s); s != "" {
			*l = append(*l, s)
		}
	}
	return nil
}

// String puts commas between.
func (l List) String() string { return strings.Join(l, ",") }

// MarshalText is String.
func (l List) MarshalText() ([]byte, error) { return []byte(l.String()), nil }
