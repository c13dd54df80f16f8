package projection

import "github.com/rollcall/rollcall/internal/ident"

// LockKey is the lock of the active projector. STRING, the owner's token. TTL: LockTTL, renewed. Writer: every projector.
// An optimisation: two that work at once refuse each other's commits.
//
//	rc:{00}:lock:projector
const LockKey = "rc:{00}:lock:projector"

// MetaKey holds the place of a projection in a shard. HASH: offset, sum, asof, epoch, journal, begun, ended, dirty. No TTL. Writer: the projector,
// in the same script as the shard's state.
//
//	rc:{0a}:meta:counters
func MetaKey(shard int, projection string) string {
	return "rc:{" + ident.Tag(shard) + "}:meta:" + projection
}
