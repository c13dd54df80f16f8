package visitor

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func mustProxies(t testing.TB, list ...string) Proxies {
	t.Helper()
	p, err := ParseProxies(list)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func wantAddress(t *testing.T, p Proxies, peer string, xff []string, ip string, mark Mark) {
	t.Helper()
	want := Address{Mark: mark}
	if ip != "" {
		want.IP = netip.MustParseAddr(ip)
	}
	if got := p.Address(peer, xff); got != want {
		t.Errorf("Address(%q, %.200q) = %v %v, want %v %v", peer, xff, got.IP, got.Mark, want.IP, want.Mark)
	}
}

// Whoever reaches us directly can't choose an address.
func TestHT04_HeaderFromAnybody(t *testing.T) {
	for _, p := range []Proxies{{}, mustProxies(t, "10.0.0.0/8")} {
		for i := range 100 {
			wantAddress(t, p, "203.0.113.9:5555", []string{fmt.Sprintf("1.2.3.%d", i)}, "203.0.113.9", Untrusted)
		}
	}
}

func TestHT06_PortsAndBrackets(t *testing.T) {
	p := mustProxies(t, "10.0.0.2")
	f := func(xff, ip string, mark Mark) {
		t.Helper()
		wantAddress(t, p, "10.0.0.2:80", []string{xff}, ip, mark)
	}
	f("198.51.100.7:44321", "198.51.100.7", Forwarded)
	f("[2001:db8::7]:443", "2001:db8::7", Forwarded)
	f("unknown", "10.0.0.2", Unparsable)
	f("198.51.100.7, garbage", "10.0.0.2", Unparsable)
}

// Behind a proxy that is trusted three visitors are three; behind one that isn't they are one, and the mark tells.
func TestHT07_ProxyNotTrusted(t *testing.T) {
	salt := [32]byte{1}
	f := func(p Proxies, users int, mark Mark) {
		t.Helper()
		seen := map[string]bool{}
		for _, ip := range []string{"198.51.100.1", "198.51.100.2", "198.51.100.3"} {
			a := p.Address("10.0.0.2:1234", []string{ip})
			if a.Mark != mark {
				t.Errorf("mark %v, want %v", a.Mark, mark)
			}
			seen[Anonymous(salt, a.IP, "Mozilla/5.0")] = true
		}
		if len(seen) != users {
			t.Errorf("%d visitors, want %d", len(seen), users)
		}
	}
	f(mustProxies(t, "10.0.0.2"), 3, Forwarded)
	f(Proxies{}, 1, Untrusted)
}

func TestAddress(t *testing.T) {
	p := mustProxies(t, "10.0.0.0/8", "2001:db8:aaaa::/48", "127.0.0.1", "fe80::/10")
	f := func(peer string, xff []string, ip string, mark Mark) {
		t.Helper()
		wantAddress(t, p, peer, xff, ip, mark)
	}
	const proxy = "10.0.0.2:80"

	// nothing to look at
	f("203.0.113.9:1", nil, "203.0.113.9", Direct)
	f("203.0.113.9:1", []string{"", "  "}, "203.0.113.9", Direct)
	f(proxy, nil, "10.0.0.2", Direct)
	f(proxy, []string{" , ,"}, "10.0.0.2", Direct)

	// the rightmost that is no proxy; what stands left of it is not even read
	f(proxy, []string{"198.51.100.7"}, "198.51.100.7", Forwarded)
	f(proxy, []string{"1.1.1.1, 198.51.100.7, 10.3.3.3"}, "198.51.100.7", Forwarded)
	f(proxy, []string{"garbage, 198.51.100.7 ,10.3.3.3"}, "198.51.100.7", Forwarded)
	f(proxy, []string{"1.1.1.1", "198.51.100.7", "10.1.1.1, 10.3.3.3"}, "198.51.100.7", Forwarded)
	f(proxy, []string{"198.51.100.7, "}, "198.51.100.7", Forwarded)
	f(proxy, []string{"198.51.100.7,\t10.0.0.9", ""}, "198.51.100.7", Forwarded)
	f("[2001:db8:aaaa::1]:80", []string{"198.51.100.7"}, "198.51.100.7", Forwarded)

	// all are proxies: the leftmost
	f(proxy, []string{"10.9.9.9, 10.3.3.3"}, "10.9.9.9", Forwarded)

	// what is no address ends the search
	f(proxy, []string{"198.51.100.7, unknown, 10.3.3.3"}, "10.0.0.2", Unparsable)
	for _, bad := range []string{
		"_hidden", "-", "198.51.100", "198.51.100.7.8", "198.51.100.07", "198.51.100.7:", "198.51.100.7:99999", "198.51.100.7:x", "[198.51.100.7]",
		"[198.51.100.7]:80", "[]", "[", "]", ":", "::ffff:", "[2001:db8::7", "2001:db8::7]", "[2001:db8::7]x", "[2001:db8::7]:", "[[::1]]", "0x7f.1",
		`"198.51.100.7"`, "198.51.100.7;8.8.8.8", "198.51.100.7 8.8.8.8", "example.com", "198.51.100.7\x00", "１９８.51.100.7", "2001:db8::7%",
		"\xff\xfe", "::1%" + strings.Repeat("z", 200),
	} {
		f(proxy, []string{bad}, "10.0.0.2", Unparsable)
	}

	// forms of one address
	f(proxy, []string{"2001:db8::7"}, "2001:db8::7", Forwarded)
	f(proxy, []string{"[2001:DB8:0::7]"}, "2001:db8::7", Forwarded)
	f(proxy, []string{"2001:db8::7%eth0"}, "2001:db8::7", Forwarded)
	f(proxy, []string{"[2001:db8::7%eth0]:443"}, "2001:db8::7", Forwarded)
	f(proxy, []string{"::ffff:198.51.100.7"}, "198.51.100.7", Forwarded)
	f(proxy, []string{"[::ffff:c633:6407]:443"}, "198.51.100.7", Forwarded)
	f(proxy, []string{"198.51.100.7, ::ffff:10.3.3.3"}, "198.51.100.7", Forwarded)

	// forms of the peer
	f("[::ffff:10.0.0.2]:80", []string{"198.51.100.7"}, "198.51.100.7", Forwarded)
	f("[fe80::1%eth0]:80", []string{"198.51.100.7"}, "198.51.100.7", Forwarded)
	f("10.0.0.2", []string{"198.51.100.7"}, "198.51.100.7", Forwarded)
	f("@", []string{"198.51.100.7"}, "", Unparsable)
	f("", nil, "", Unparsable)
}

// However long the header, a bounded part of it is read.
func TestAddressOfLongHeaders(t *testing.T) {
	p := mustProxies(t, "10.0.0.0/8")
	f := func(xff []string, ip string, mark Mark) {
		t.Helper()
		wantAddress(t, p, "10.0.0.2:80", xff, ip, mark)
	}
	f([]string{strings.Repeat("1.1.1.1,", 100_000) + "198.51.100.7"}, "198.51.100.7", Forwarded)
	f([]string{"198.51.100.7" + strings.Repeat(", 10.1.1.1", 63)}, "198.51.100.7", Forwarded)
	f([]string{strings.TrimPrefix(strings.Repeat(", 10.1.1.1", 64), ", ")}, "10.1.1.1", Forwarded)
	f([]string{"198.51.100.7" + strings.Repeat(", 10.1.1.1", 64)}, "10.0.0.2", Unparsable)
	f([]string{"198.51.100.7" + strings.Repeat(",", 100_000)}, "10.0.0.2", Unparsable)
	f([]string{strings.Repeat("x", 1<<20)}, "10.0.0.2", Unparsable)
	f([]string{"198.51.100.7," + strings.Repeat("x", 200)}, "10.0.0.2", Unparsable)
	f([]string{"198.51.100.7" + strings.Repeat(" ", 1<<20)}, "198.51.100.7", Forwarded)
	many := make([]string, 1000)
	f(many, "10.0.0.2", Unparsable)
	many[999] = "198.51.100.7"
	f(many, "198.51.100.7", Forwarded)
}

func TestParseProxies(t *testing.T) {
	f := func(proxy, in, out string) {
		t.Helper()
		p := mustProxies(t, proxy)
		if a := netip.MustParseAddr(in); !p.trusts(a) {
			t.Errorf("%s doesn't trust %s", proxy, in)
		}
		if a := netip.MustParseAddr(out); p.trusts(a) {
			t.Errorf("%s trusts %s", proxy, out)
		}
	}
	f("10.0.0.0/8", "10.255.0.1", "11.0.0.1")
	f(" 10.1.2.3/8 ", "10.255.0.1", "11.0.0.1") // bits of the host don't matter
	f("10.0.0.2", "10.0.0.2", "10.0.0.3")
	f("::ffff:10.0.0.2", "10.0.0.2", "10.0.0.3")
	f("::ffff:10.0.0.0/104", "10.9.9.9", "11.0.0.1")
	f("2001:db8::/32", "2001:db8::1", "2001:db9::1")
	f("::1", "::1", "127.0.0.1")
	f("0.0.0.0/0", "8.8.8.8", "::1")

	if p := mustProxies(t, "", " "); len(p.trusted) != 0 {
		t.Errorf("blank entries trust %v", p.trusted)
	}
	p, err := ParseProxies([]string{"10.0.0.0/8", "10.0.0.0/33", "proxy.local", "10.0.0.2:80"})
	if err == nil || len(p.trusted) != 0 {
		t.Fatalf("bad entries: %v, %v", p, err)
	}
	for _, bad := range []string{`"10.0.0.0/33"`, `"proxy.local"`, `"10.0.0.2:80"`} {
		if !strings.Contains(err.Error(), bad) {
			t.Errorf("%v doesn't name %s", err, bad)
		}
	}
	if strings.Contains(err.Error(), "/8") {
		t.Errorf("%v names a good entry", err)
	}
}

func TestMarkString(t *testing.T) {
	for m, want := range map[Mark]string{Direct: "direct", Forwarded: "forwarded", Unparsable: "unparsable", Untrusted: "untrusted", 9: "unknown"} {
		if m.String() != want {
			t.Errorf("%d is %q, want %q", m, m, want)
		}
	}
}

// FuzzAddress: no header makes Address panic, an untrusted peer is always itself, and what is found stands in the header.
func FuzzAddress(f *testing.F) {
	f.Add("10.0.0.2:80", "198.51.100.7:1, [2001:db8::7]:443\nunknown,10.1.1.1")
	f.Add("203.0.113.9:1", "1.1.1.1")
	f.Add("[fe80::1%eth0]:80", ",,,\n ::ffff:1.2.3.4 ")
	f.Add("@", "[\n]")
	p := mustProxies(f, "10.0.0.0/8", "fe80::/10")
	f.Fuzz(func(t *testing.T, peer, header string) {
		if len(peer) > 50 || len(header) > 200 {
			return // enough for every branch; the fuzzer would spend its time on making long inputs shorter
		}
		lines := strings.Split(header, "\n")
		self := p.Address(peer, nil)
		a := p.Address(peer, lines)
		if a.IP.Is4In6() || a.IP.Zone() != "" {
			t.Errorf("%v is not in its plain form", a.IP)
		}
		switch a.Mark {
		case Forwarded:
			if !self.IP.IsValid() || !p.trusts(self.IP) || !stands(a.IP, strings.Join(lines, ",")) {
				t.Errorf("%v was forwarded by %v", a.IP, self.IP)
			}
		case Direct, Unparsable, Untrusted:
			if a.IP != self.IP {
				t.Errorf("%v %v, want the peer %v", a.IP, a.Mark, self.IP)
			}
		}
		if a.Mark == Untrusted && p.trusts(self.IP) {
			t.Errorf("%v is trusted", self.IP)
		}
		// what a client sends cannot change what a trusted proxy added behind it
		added := p.Address(peer, append(lines, "198.51.100.7"))
		if p.trusts(self.IP) && added.IP != netip.MustParseAddr("198.51.100.7") {
			t.Errorf("%v came through", added.IP)
		}
	})
}

func stands(ip netip.Addr, header string) bool {
	for entry := range strings.SplitSeq(header, ",") {
		if entry = strings.Trim(entry, " \t"); entry == "" {
			continue
		}
		if got, ok := parseHop(entry); ok && got == ip {
			return true
		}
	}
	return false
}
