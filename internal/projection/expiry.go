package projection

import "time"

const dayMs = int64(24 * time.Hour / time.Millisecond)

// Expiry is when the key of a period that ends at to may go, in unix milliseconds: keep after the later of to and received, rounded up to a
// UTC day so that it changes once a day at most. Both stand in the record, so a replay sets the same. What would be gone by now (a rebuild
// from an old journal) gets another day: EXPIREAT in the past would delete the key, and the next write would make one that never goes.
func Expiry(to, received int64, keep time.Duration, now int64) int64 {
	return max(ceilDay(max(to, received))+keep.Milliseconds(), ceilDay(now)+dayMs)
}

func ceilDay(ms int64) int64 { return (ms + dayMs - 1) / dayMs * dayMs }

// Expiring tells of a key that may be gone before a batch is committed that is folded now: nothing that is known about it holds. An expiry of 0
// is not known.
func Expiring(expiry, now int64) bool {
	return expiry != 0 && now > expiry-time.Hour.Milliseconds()
}
