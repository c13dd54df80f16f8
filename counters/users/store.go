package users

import (
	"context"
	"errors"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/redis/go-redis/v9"
)

// Kind says what the sets of an Ask hold.
type Kind uint8

// The kinds of set.
const (
	Active Kind = iota // who had an event of the metric on the day
	First              // who was seen first on the day, by any event; Metric is not looked at
)

// Ask names the union of the sets of some local days.
type Ask struct {
	Kind   Kind
	Metric string   // an event's name, or counters.Any
	Days   []string // labels of local days: 2015-05-17
}

// Request asks for one union of each Ask.
type Request struct {
	Project string
	Asks    []Ask
	Budget  int64 // bytes that may be read from Redis; 0 = DefaultBudget
}

// DefaultBudget bounds what one question reads.
const DefaultBudget = 512 << 20

// StoreOptions of a Store. Redis and Shards must be set.
type StoreOptions struct {
	Redis  redis.UniversalClient // only read from: may be a replica
	Shards int
}

// Store reads the sets. It never writes. Safe for concurrent use.
type Store struct{ o StoreOptions }

// NewStore makes a Store.
func NewStore(o StoreOptions) *Store { return &Store{o} }

// Each calls fn for each user shard that has a member in any of the sets, with one union for each Ask; the ordinals are those of the shard.
// The bitmaps are fn's to keep and change. One shard is in memory at a time. Returned is up to when everything received is in the sets.
//
// Errors: apperr TooLarge (query_too_large), Internal (damaged_set), Unavailable (redis_unavailable), and those of fn.
func (s *Store) Each(ctx context.Context, r Request, fn func(shard int, sets []*roaring.Bitmap) error) (asOf time.Time, err error) {
	return time.Time{}, errors.New("not built yet")
}
