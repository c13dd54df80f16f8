package visitor

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

const (
	maxHops = 64  // entries of X-Forwarded-For that are looked at, from the right
	maxHop  = 128 // bytes of one entry; the longest address with a port takes 47, a zone may follow
)

// Mark says how an address was found.
type Mark uint8

// The marks.
const (
	Direct     Mark = iota // the peer's own, there was nothing to look at
	Forwarded              // from X-Forwarded-For, as a trusted proxy wrote it
	Unparsable             // the peer's own: a trusted proxy forwarded something that is no address, or too many of them
	Untrusted              // the peer's own: it sent X-Forwarded-For and is no trusted proxy, so what it says was ignored
)

// String is the mark in one word, for metrics and logs.
func (m Mark) String() string {
	switch m {
	case Direct:
		return "direct"
	case Forwarded:
		return "forwarded"
	case Unparsable:
		return "unparsable"
	case Untrusted:
		return "untrusted"
	}
	return "unknown"
}

// Address is where a request came from.
type Address struct {
	IP   netip.Addr // IPv4 never mapped into IPv6, without a zone; the zero Addr when the peer has none (a unix socket)
	Mark Mark
}

// Proxies are the peers whose X-Forwarded-For is believed. The zero value believes nobody.
type Proxies struct {
	trusted []netip.Prefix
}

// ParseProxies reads CIDRs ("10.0.0.0/8") and single addresses. Blank entries are left out. The error names every entry that is neither.
// Whoever may connect from a listed address can give any address as its own.
func ParseProxies(list []string) (Proxies, error) {
	var p Proxies
	var faults []error
	for _, s := range list {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		prefix, err := parseProxy(s)
		if err != nil {
			faults = append(faults, fmt.Errorf("%q is neither a CIDR nor an address", s))
			continue
		}
		p.trusted = append(p.trusted, prefix)
	}
	if len(faults) > 0 {
		return Proxies{}, errors.Join(faults...)
	}
	return p, nil
}

func parseProxy(s string) (netip.Prefix, error) {
	if strings.Contains(s, "/") {
		prefix, err := netip.ParsePrefix(s)
		if err == nil && prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
			prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96) // addresses are compared unmapped
		}
		return prefix.Masked(), err
	}
	ip, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	ip = plain(ip)
	return netip.PrefixFrom(ip, ip.BitLen()), nil
}

func (p Proxies) trusts(ip netip.Addr) bool {
	for _, prefix := range p.trusted {
		if prefix.Contains(ip) {
			return true
		}
	}
	return false
}

// Address finds the client's address. remoteAddr is the peer's, as in http.Request.RemoteAddr; xff holds the X-Forwarded-For lines in the
// order they came. Each proxy appends the peer it saw, so the entries are read from the right, and the first that is no trusted proxy is
// the client: everything to its left is the client's own word. If all are trusted the leftmost is the client. Entries may have a port and
// brackets. One that is no address ("unknown") ends the search, since what stands left of it can't be believed. At most 64 entries are
// looked at.
func (p Proxies) Address(remoteAddr string, xff []string) Address {
	peer := parsePeer(remoteAddr)
	if !peer.IsValid() {
		return Address{Mark: Unparsable}
	}
	hops := hops{lines: xff}
	if !p.trusts(peer) {
		if blank(xff) {
			return Address{IP: peer}
		}
		return Address{IP: peer, Mark: Untrusted}
	}
	found := Address{IP: peer}
	for range maxHops {
		entry, ok := hops.next()
		if !ok {
			return found
		}
		if entry == "" {
			continue // RFC 9110, 5.6.1: empty elements of a list are ignored
		}
		ip, ok := parseHop(entry)
		if !ok {
			return Address{IP: peer, Mark: Unparsable}
		}
		found = Address{IP: ip, Mark: Forwarded}
		if !p.trusts(ip) {
			return found
		}
	}
	if hops.end() {
		return found
	}
	return Address{IP: peer, Mark: Unparsable}
}

func parsePeer(remoteAddr string) netip.Addr {
	if ap, err := netip.ParseAddrPort(remoteAddr); err == nil {
		return plain(ap.Addr())
	}
	ip, err := netip.ParseAddr(remoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return plain(ip)
}

// parseHop reads an entry in one of the forms that proxies write: 198.51.100.7, 198.51.100.7:44321, 2001:db8::7, [2001:db8::7],
// [2001:db8::7]:443.
func parseHop(s string) (netip.Addr, bool) {
	if len(s) > maxHop {
		return netip.Addr{}, false
	}
	bracket := s[0] == '['
	if bracket && s[len(s)-1] == ']' {
		ip, err := netip.ParseAddr(s[1 : len(s)-1])
		return plain(ip), err == nil && strings.Contains(s, ":")
	}
	if bracket || strings.Count(s, ":") == 1 {
		ap, err := netip.ParseAddrPort(s)
		return plain(ap.Addr()), err == nil
	}
	ip, err := netip.ParseAddr(s)
	return plain(ip), err == nil
}

// plain makes equal addresses equal: no IPv4 mapped into IPv6, and no zone, which only means something to the machine that wrote it.
func plain(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }

func blank(lines []string) bool {
	for _, s := range lines {
		if strings.Trim(s, " \t") != "" {
			return false
		}
	}
	return true
}

// hops yields the entries of the lines from the last to the first.
type hops struct {
	lines  []string
	rest   string // of the line at hand; the comma after it is gone
	inLine bool
}

func (h *hops) end() bool { return !h.inLine && len(h.lines) == 0 }

// next returns an entry without the blanks around it. Of one that is too long to be an address it returns only the end, still too long, so
// that a long line is not searched for a comma.
func (h *hops) next() (entry string, ok bool) {
	if !h.inLine {
		if len(h.lines) == 0 {
			return "", false
		}
		last := len(h.lines) - 1
		h.lines, h.rest, h.inLine = h.lines[:last], h.lines[last], true
	}
	s := strings.TrimRight(h.rest, " \t")
	from := max(0, len(s)-maxHop-1)
	comma := strings.LastIndexByte(s[from:], ',')
	switch {
	case comma >= 0:
		entry, h.rest = s[from+comma+1:], s[:from+comma]
	case from > 0:
		return s[from:], true
	default:
		entry, h.inLine = s, false
	}
	return strings.TrimLeft(entry, " \t"), true
}
