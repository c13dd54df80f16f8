package limit

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/zeebo/xxh3"
	"golang.org/x/time/rate"
)

// Buckets is the local tier: a token bucket for each name, full at first. Safe for concurrent use.
//
// It keeps the newest size names, about 300 bytes each whatever their length. A name that was pushed out starts full again, so keys and
// addresses belong into Buckets of their own: a flood of addresses then can't refill a key.
type Buckets struct {
	seed   uint64 // random, so that nobody can choose a name that shares the bucket of another
	shards []bucketShard
}

type bucketShard struct {
	mu  sync.Mutex
	lru *simplelru.LRU[xxh3.Uint128, *bucket]
	_   [48]byte // a cache line each
}

type bucket struct {
	limiter *rate.Limiter
	last    time.Time // newest now that it has seen
}

// NewBuckets makes room for size names, at least 1.
func NewBuckets(size int) *Buckets {
	size = max(1, size)
	shards := 1
	for shards < 32 && size/shards >= 1024 { // with few names to a shard, some shards would be full long before others
		shards *= 2
	}
	b := &Buckets{seed: rand.Uint64(), shards: make([]bucketShard, shards)}
	for i := range b.shards {
		lru, err := simplelru.NewLRU[xxh3.Uint128, *bucket](size/shards, nil)
		if err != nil {
			panic(err) // only for a size below 1
		}
		b.shards[i].lru = lru
	}
	return b
}

// Len is how many names are kept.
func (b *Buckets) Len() int {
	n := 0
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		n += s.lru.Len()
		s.mu.Unlock()
	}
	return n
}

// Peek tells whether Take of 1 would pass, and consumes nothing.
func (b *Buckets) Peek(name string, r Rate, now time.Time) State {
	if r.IsZero() {
		return State{OK: true}
	}
	key, s := b.find(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.lru.Get(key)
	if !ok {
		return State{OK: true, Limit: r.burst(), Remaining: r.burst()}
	}
	now = k.tune(r, now)
	tokens := k.limiter.TokensAt(now)
	return r.state(r.whole(tokens) >= 1, 1, tokens)
}

// Take consumes n from the name's bucket, or nothing when it does not hold n. A call for more than the rate's burst never passes. A
// name whose rate has changed keeps what its bucket holds, up to the new burst. n below 1 passes.
func (b *Buckets) Take(name string, r Rate, n int, now time.Time) State {
	if r.IsZero() {
		return State{OK: true}
	}
	key, s := b.find(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.lru.Get(key)
	switch {
	case ok:
	case n < 1:
		return State{OK: true, Limit: r.burst(), Remaining: r.burst()}
	case n > r.burst():
		return State{Limit: r.burst(), Remaining: r.burst()}
	default:
		k = &bucket{limiter: rate.NewLimiter(r.perSecond(), r.burst()), last: now}
		s.lru.Add(key, k)
	}
	now = k.tune(r, now)
	passed := n < 1 || k.limiter.AllowN(now, n)
	return r.state(passed, n, k.limiter.TokensAt(now))
}

func (b *Buckets) find(name string) (xxh3.Uint128, *bucketShard) {
	key := xxh3.HashString128Seed(name, b.seed)
	return key, &b.shards[key.Lo%uint64(len(b.shards))]
}

// tune gives the bucket the rate that is in force, and returns the time to reckon with: a limiter that is asked about an earlier time
// would give the tokens of the span between once more.
func (k *bucket) tune(r Rate, now time.Time) time.Time {
	if now.Before(k.last) {
		now = k.last
	}
	k.last = now
	if per := r.perSecond(); k.limiter.Limit() != per {
		k.limiter.SetLimitAt(now, per)
	}
	if k.limiter.Burst() != r.burst() {
		k.limiter.SetBurstAt(now, r.burst())
	}
	return now
}

// whole is how many of the tokens can be taken. The limiter lets pass what would be there in less than a nanosecond, which covers what
// float arithmetic loses.
func (r Rate) whole(tokens float64) int {
	return int(max(0, math.Floor(tokens+0.5e-9*float64(r.perSecond()))))
}

// state describes a bucket that holds tokens after a call for n.
func (r Rate) state(passed bool, n int, tokens float64) State {
	limit := r.burst()
	s := State{OK: passed, Limit: limit, Remaining: min(limit, r.whole(tokens)), Reset: r.span(float64(limit) - tokens)}
	if !passed && n <= limit {
		s.RetryAfter = max(time.Millisecond, r.span(float64(n)-tokens))
	}
	return s
}
