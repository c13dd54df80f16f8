// Package limit says how often something may happen. It has two tiers.
//
// Buckets are token buckets in this process's memory: they need nobody, so they stand on the path of beacons, and each node has its
// own. Windows are exact sliding windows in Redis, shared by all nodes: they need Redis, so they stand on the path of commands.
// A call that is refused consumes nothing in either.
package limit

import (
	"net/netip"
	"time"
)

// State is the answer to one call, and what the headers RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset and Retry-After say.
// Durations are whole milliseconds, rounded up.
type State struct {
	OK         bool
	Limit      int           // the most that can be taken at once; 0 = there is no limit
	Remaining  int           // what can still be taken now
	Reset      time.Duration // until Remaining is Limit again, if nothing else is taken
	RetryAfter time.Duration // when refused: until the same call passes; 0 = it never does, since it asks for more than Limit
}

// AddressName is the name under which a client's address is limited: an IPv4 address as it is, also when it is mapped into IPv6; of an
// IPv6 address its /64, since that is what one client has; "unknown" for no address.
func AddressName(a netip.Addr) string {
	a = a.Unmap()
	switch {
	case !a.IsValid():
		return "unknown"
	case a.Is4():
		return a.String()
	}
	return netip.PrefixFrom(a.WithZone(""), 64).Masked().String()
}
