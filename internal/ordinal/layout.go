// Package ordinal numbers the users of a project: each gets a dense integer of its user shard, its ordinal, in the order in which the
// journal brings them. What is stored about users in packed form (sets, calendars) is indexed by it and stands in the same shard, so that
// both go back together when Redis loses its last second.
package ordinal

import (
	"math/bits"

	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/ident"
)

// MaxUsers is the most users that a project can have in one shard. Sets use the bit above for a mark.
const MaxUsers = 1 << 31

// The dictionary grows by levels, and nothing ever moves: level 0 has the first 4,096 users of the shard, and each level above brings the
// shard to four times what it had. A level is a fixed number of buckets, small hashes that Redis keeps as listpacks: at the defaults
// (hash-max-listpack-entries 128, hash-max-listpack-value 64) that is a third of a plain hash.
const (
	firstLevel   = 4096
	firstBuckets = 64  // of level 0: 64 users each when it is full
	nextBuckets  = 256 // of level 1, and four times as many for each level above: 48 users each
	maxField     = 60  // a longer user would turn its bucket into a plain hash, so those have buckets of their own
)

// levelOf is the level that has an ordinal.
func levelOf(ordinal uint32) int {
	return (bits.Len32(ordinal/firstLevel) + 1) / 2
}

// levels is how many levels have users when there are n.
func levels(n uint32) int {
	if n == 0 {
		return 0
	}
	return levelOf(n-1) + 1
}

// bucketOf is the bucket of a user with this tag.
func bucketOf(level int, tag uint32) uint32 {
	if level == 0 {
		return tag % firstBuckets
	}
	return tag % (nextBuckets << (2 * (level - 1)))
}

// place is what follows from a user's name alone.
type place struct {
	shard int
	tag   uint32 // its bucket at any level
}

// placeOf hashes a user. The shard is ident.Shard of project and user.
func placeOf(shards int, project, user string) place {
	h := ident.Hash(project, user)
	return place{int(h % uint64(shards)), uint32(h >> 32)}
}

// packedUUID begins the field of a user whose name is a canonical UUID: no UTF-8 begins with this byte.
const packedUUID = 0xff

// fieldOf is a user's name as it stands in a bucket.
func fieldOf(user string) string {
	if len(user) == event.UUIDText {
		var b [17]byte
		b[0] = packedUUID
		if f, ok := event.AppendUUID(b[:1], user); ok {
			return string(f)
		}
	}
	return user
}

// userOf undoes fieldOf.
func userOf(field string) (user string, ok bool) {
	if field == "" || field[0] != packedUUID {
		return field, field != ""
	}
	if len(field) != 17 {
		return "", false
	}
	var text [event.UUIDText]byte
	event.PutUUID(text[:], []byte(field[1:]))
	return string(text[:]), true
}

// Segments hold something of fixed size for each ordinal, in strings that are allocated whole: small ones first, so that a project of ten
// users does not pay for a thousand, then such that 4 and 8 bytes a user fill an allocation class.
const (
	smallSegments = 17
	smallSegment  = 60
	segment       = 1020
)

// Segment is where ordinals that follow each other stand together.
type Segment struct {
	Number uint32
	Size   uint32 // ordinals in the segment
}

// SegmentOf is an ordinal's segment and its index there.
func SegmentOf(ordinal uint32) (Segment, uint32) {
	if ordinal < smallSegments*smallSegment {
		return Segment{ordinal / smallSegment, smallSegment}, ordinal % smallSegment
	}
	// 17 small ones are one of full size.
	return Segment{smallSegments - 1 + ordinal/segment, segment}, ordinal % segment
}
