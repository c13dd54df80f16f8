package users

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/semaphore"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/projection"
)

// store reads sets. It never writes.
type store struct {
	rdb    redis.UniversalClient
	shards int
	budget int64               // bytes that one question may read
	memory *semaphore.Weighted // bytes of sets in memory, over all questions
}

// ask names a stored set, without its shard.
type ask struct {
	kind   Kind
	metric string
	day    string
}

// facts are what was read beside the sets.
type facts struct {
	asof     time.Time            // zero = nothing was applied yet
	restated []restated           // by ask
	since    map[string]time.Time // by metric, and "" for the project
}

var none = roaring.New() // of a day without users; only read

// errEnough ends a read before its last shard.
var errEnough = errors.New("enough")

// read hands the sets of the shards from..to-1 to each, in the order of the collection, until it returns errEnough. A shard's sets are of one moment, and
// gone when each returns. Errors: apperr Invalid (query_too_large), Internal (damaged_set), Unavailable (redis_unavailable), the context's.
func (s *store) read(ctx context.Context, project string, from, to int, c *collection, each func(shard int, sets []*roaring.Bitmap) error) (*facts, error) {
	asks := c.asks
	f := &facts{restated: make([]restated, len(asks)), since: map[string]time.Time{}}
	if c.many {
		return nil, errMany
	}
	sizes, err := s.measure(ctx, project, from, to, asks, f)
	if err != nil {
		return nil, err
	}
	for shard := from; shard < to; shard++ {
		err := s.shard(ctx, project, shard, sizes[shard-from], asks, f, each)
		if errors.Is(err, errEnough) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

// measure asks how large the sets are, and refuses what is beyond the budget.
func (s *store) measure(ctx context.Context, project string, from, to int, asks []ask, f *facts) ([]int64, error) {
	pipe := s.rdb.Pipeline()
	asof := make([]projection.AsOf, to-from)
	lengths := make([][]*redis.IntCmd, to-from)
	for i := range asof { // asof first: what is read behind it is at least as fresh
		asof[i] = projection.AskAsOf(ctx, pipe, from+i, Name)
	}
	home := homeOf(s.shards, project)
	since := pipe.HGetAll(ctx, sinceKey(keyBase(home, project)))
	for i := range lengths {
		base := keyBase(from+i, project)
		for _, a := range asks {
			lengths[i] = append(lengths[i], pipe.StrLen(ctx, setKey(base, a.kind, a.metric, a.day)))
		}
	}
	_, _ = pipe.Exec(ctx) // every reply is looked at below
	for i := range asof {
		t, err := asof[i].Time()
		if err != nil {
			return nil, err
		}
		if i == 0 || t.Before(f.asof) {
			f.asof = t
		}
	}
	stored, err := since.Result()
	if err != nil {
		return nil, fault(err, "The begin of the sets")
	}
	for metric, text := range stored {
		ms, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fault(err, "The begin of the sets")
		}
		f.since[metric] = time.UnixMilli(ms)
	}
	sizes, all := make([]int64, to-from), int64(0)
	for i := range lengths {
		for k, cmd := range lengths[i] {
			n, err := cmd.Result()
			if err != nil {
				return nil, fault(err, "The set of "+asks[k].day)
			}
			sizes[i] += n
		}
		all += sizes[i]
	}
	if all > s.budget {
		return nil, apperr.New(apperr.Invalid, "query_too_large",
			"This question would read %d MiB of sets, more than one question may: ask for a shorter range, or for parts of it.", all>>20).
			On("from").Over(fmt.Sprintf("%d MiB", s.budget>>20), "limits.query_bytes")
	}
	return sizes, nil
}

const (
	memoryBudget = 512 << 20 // of sets of all questions that are being answered, as they are stored
)

// shard reads the sets of one shard.
func (s *store) shard(ctx context.Context, project string, shard int, size int64, asks []ask, f *facts, each func(int, []*roaring.Bitmap) error) error {
	held := min(size, memoryBudget)
	if err := s.memory.Acquire(ctx, held); err != nil {
		return err
	}
	defer s.memory.Release(held)
	base := keyBase(shard, project)
	keys := make([]string, len(asks))
	for i, a := range asks {
		keys[i] = setKey(base, a.kind, a.metric, a.day)
	}
	var values []any
	var err error
	if len(keys) > 0 {
		if values, err = s.rdb.MGet(ctx, keys...).Result(); err != nil {
			return fault(err, "A set of users")
		}
	}
	sets := make([]*roaring.Bitmap, len(asks))
	for i, v := range values {
		text, ok := v.(string)
		if !ok {
			sets[i] = none
			continue
		}
		d, err := decode(text)
		if err != nil {
			return fault(fmt.Errorf("%s: %w", keys[i], err), "The set of "+asks[i].day)
		}
		sets[i] = d.bits
		f.restated[i].changes += d.changes
		f.restated[i].at = max(f.restated[i].at, d.at)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return each(shard, sets)
}

func fault(err error, what string) error {
	var public *apperr.Error
	if errors.As(err, &public) {
		return err
	}
	return projection.ReadFault(err, Name, "damaged_set", what)
}
