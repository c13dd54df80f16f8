package limit

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/apperr"
)

func TestRate_Text(t *testing.T) {
	f := func(text string, want Rate, canonical string) {
		t.Helper()
		var r Rate
		if err := r.UnmarshalText([]byte(text)); err != nil || r != want {
			t.Errorf("%q = %+v, %v; want %+v", text, r, err, want)
		}
		if r.String() != canonical {
			t.Errorf("%q prints %q, want %q", text, r.String(), canonical)
		}
		var back Rate
		if err := back.UnmarshalText([]byte(canonical)); err != nil || back != want {
			t.Errorf("%q = %+v, %v; want %+v", canonical, back, err, want)
		}
	}
	f("1000/s", Rate{1000, time.Second, 1000}, "1000/s")
	f("600/m", Rate{600, time.Minute, 600}, "600/m")
	f("10000/h", Rate{10000, time.Hour, 10000}, "10000/h")
	f("5/d", Rate{5, 24 * time.Hour, 5}, "5/d")
	f("100/10s", Rate{100, 10 * time.Second, 100}, "100/10s")
	f("1/60s", Rate{1, time.Minute, 1}, "1/m")
	f("7/7d", Rate{7, 168 * time.Hour, 7}, "7/168h")
	f("3/1h30m", Rate{3, 90 * time.Minute, 3}, "3/1h30m")
	f("1/250ms", Rate{1, 250 * time.Millisecond, 1}, "1/250ms")
	f(" 1000/s  burst\t5000 ", Rate{1000, time.Second, 5000}, "1000/s burst 5000")
	f("1000/s burst 1000", Rate{1000, time.Second, 1000}, "1000/s")
	f("1000/s burst 1", Rate{1000, time.Second, 1}, "1000/s burst 1")
	f("1000000000/31d", Rate{1e9, 31 * 24 * time.Hour, 1e9}, "1000000000/744h")
	f("none", Rate{}, "none")
	f("", Rate{}, "none")
}

func TestRate_Faults(t *testing.T) {
	f := func(text, why string) {
		t.Helper()
		r := Rate{1, 2, 3}
		err := r.UnmarshalText([]byte(text))
		var e *apperr.Error
		if !errors.As(err, &e) || e.Kind != apperr.Invalid || e.Code != "bad_rate" || !strings.Contains(e.Detail, why) || len(e.Detail) > 400 {
			t.Errorf("%q: %v, want bad_rate with %q", text, err, why)
		}
		if r != (Rate{1, 2, 3}) {
			t.Errorf("%q has changed the rate to %+v", text, r)
		}
	}
	f("1000", "no span")
	f("1000 /s", "form")
	f("0/s", "count")
	f("-1/s", "count")
	f("+1/s", "count")
	f("1.5/s", "count")
	f("1e3/s", "count")
	f("1000000001/s", "count")
	f("99999999999999999999/s", "count")
	f("/s", "count")
	f("10/", "span")
	f("10/x", "span")
	f("10/0s", "span")
	f("10/-1s", "span")
	f("10/1us", "span")
	f("10/32d", "span")
	f("10/99999d", "span")
	f("10/s/s", "span")
	f("10/s burst", "form")
	f("10/s burst 0", "burst")
	f("10/s burst x", "burst")
	f("10/s 50", "form")
	f("10/s burst 5 6", "form")
	f("\xff\x00/s", "count")
	f(strings.Repeat("9", 10_000)+"/s", "…")
}

func TestRate_JSON(t *testing.T) {
	var v struct{ Rate Rate }
	if err := json.Unmarshal([]byte(`{"Rate":"10/m burst 20"}`), &v); err != nil || v.Rate != (Rate{10, time.Minute, 20}) {
		t.Fatalf("%+v, %v", v, err)
	}
	if b, err := json.Marshal(v); err != nil || string(b) != `{"Rate":"10/m burst 20"}` {
		t.Fatalf("%s, %v", b, err)
	}
}

func FuzzRate(f *testing.F) {
	for _, s := range []string{"1000/s", "100/10s burst 5", "5/d", "none", "1/1d12h", "1/1.5s", "x", "\xff/s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var r, back Rate
		if r.UnmarshalText([]byte(s)) != nil {
			return
		}
		if err := back.UnmarshalText([]byte(r.String())); err != nil || back != r {
			t.Errorf("%q is %+v, prints as %q, which is %+v, %v", s, r, r.String(), back, err)
		}
	})
}

func TestAddressName(t *testing.T) {
	f := func(addr, want string) {
		t.Helper()
		a, _ := netip.ParseAddr(addr)
		if got := AddressName(a); got != want {
			t.Errorf("AddressName(%s) = %q, want %q", addr, got, want)
		}
	}
	f("203.0.113.7", "203.0.113.7")
	f("::ffff:203.0.113.7", "203.0.113.7")
	f("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64")
	f("2001:db8:1:2::", "2001:db8:1:2::/64")
	f("2001:db8:1:3::1", "2001:db8:1:3::/64")
	f("fe80::1%eth0", "fe80::/64")
	f("::1", "::/64")
	f("", "unknown")
}
