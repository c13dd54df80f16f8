package visitor

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/netip"
)

const idPrefix = "anon-"

// Anonymous is the id of a visitor who gives none: "anon-" and 22 characters of base64url, 128 bits of the HMAC-SHA-256 of address and user
// agent under the salt. The same three give the same id; without the salt an id can't be traced back by trying all addresses. The zone of an
// address, IPv4 being mapped into IPv6, and what stands beyond the first 1,024 bytes of a user agent make no difference. An invalid ip (a
// peer without an address) is one more address, the same for all.
func Anonymous(salt [32]byte, ip netip.Addr, userAgent string) string {
	if len(userAgent) > maxAgent {
		userAgent = userAgent[:maxAgent]
	}
	address := ip.As16() // a fixed length, so that address and user agent can't run into each other
	message := make([]byte, 0, len(address)+len(userAgent))
	message = append(append(message, address[:]...), userAgent...)
	mac := hmac.New(sha256.New, salt[:])
	mac.Write(message)
	sum := mac.Sum(nil)
	id := make([]byte, 0, len(idPrefix)+22)
	return string(base64.RawURLEncoding.AppendEncode(append(id, idPrefix...), sum[:16]))
}
