package visitor

import (
	"net/netip"
	"strings"
	"testing"
)

// The value is for ever: stored counts of projects with a stable salt depend on it.
func TestAnonymousGolden(t *testing.T) {
	salt := [32]byte{31: 7}
	got := Anonymous(salt, netip.MustParseAddr("198.51.100.7"), "Mozilla/5.0")
	if want := "anon-7A9rho-FiH3cgi7xod9xsw"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAnonymous(t *testing.T) {
	seen := map[string]string{}
	for _, salt := range [][32]byte{{}, {1}, {31: 1}} {
		for _, ip := range []string{"198.51.100.7", "198.51.100.8", "2001:db8::7", "2001:db8::8", "::", "::198.51.100.7"} {
			for _, ua := range []string{"", "a", "b", "ab", "\x00", "a\x00", strings.Repeat("x", maxAgent), strings.Repeat("x", maxAgent-1)} {
				id := Anonymous(salt, netip.MustParseAddr(ip), ua)
				if id != Anonymous(salt, netip.MustParseAddr(ip), ua) {
					t.Errorf("%s %q: two ids for one visitor", ip, ua)
				}
				if len(id) != len("anon-")+22 || !strings.HasPrefix(id, "anon-") || strings.ContainsAny(id, "+/= ") {
					t.Errorf("%q is no id", id)
				}
				who := string(salt[:]) + " " + ip + " " + ua
				if other, ok := seen[id]; ok {
					t.Errorf("%q and %q are both %s", who, other, id)
				}
				seen[id] = who
			}
		}
	}
}

func TestAnonymousSameVisitor(t *testing.T) {
	f := func(ip1, ua1, ip2, ua2 string) {
		t.Helper()
		salt := [32]byte{1}
		if Anonymous(salt, netip.MustParseAddr(ip1), ua1) != Anonymous(salt, netip.MustParseAddr(ip2), ua2) {
			t.Errorf("%s %.20q and %s %.20q are two visitors", ip1, ua1, ip2, ua2)
		}
	}
	long := strings.Repeat("x", maxAgent)
	f("198.51.100.7", "a", "::ffff:198.51.100.7", "a")
	f("fe80::1", "a", "fe80::1%eth0", "a")
	f("198.51.100.7", long, "198.51.100.7", long+"y")
}

func TestAnonymousWithoutAddress(t *testing.T) {
	salt := [32]byte{1}
	if Anonymous(salt, netip.Addr{}, "a") == Anonymous(salt, netip.Addr{}, "b") {
		t.Error("the user agent is lost")
	}
}
