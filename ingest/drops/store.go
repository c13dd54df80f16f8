package drops

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/projection"
)

// hash is a stored hash: the sums by minute or hour.
type hash map[string]*Sums

// read reads hashes, and up to when they are complete, in one round trip. An absent hash is empty.
func read(ctx context.Context, rdb redis.UniversalClient, shard int, keys []string) (asof time.Time, hashes []hash, err error) {
	pipe := rdb.Pipeline()
	meta := projection.AskAsOf(ctx, pipe, shard, Name)
	cmds := make([]*redis.MapStringStringCmd, len(keys))
	for i, key := range keys {
		cmds[i] = pipe.HGetAll(ctx, key)
	}
	_, _ = pipe.Exec(ctx) // every reply is looked at below
	if asof, err = meta.Time(); err != nil {
		return asof, nil, err
	}
	for i, cmd := range cmds {
		h, err := parse(cmd)
		if err != nil {
			return asof, nil, projection.ReadFault(err, Name, "damaged_count", "The value of "+keys[i])
		}
		hashes = append(hashes, h)
	}
	return asof, hashes, nil
}

func parse(cmd *redis.MapStringStringCmd) (hash, error) {
	stored, err := cmd.Result()
	if err != nil {
		return nil, err
	}
	h := hash{}
	for field, value := range stored {
		at, kind, ok := cutField(field)
		if !ok {
			return nil, fmt.Errorf("%w: field %q", projection.ErrDamaged, field)
		}
		s := h[at]
		if s == nil {
			s = &Sums{}
			h[at] = s
		}
		if err := s.addStored(kind, value); err != nil {
			return nil, err
		}
	}
	return h, nil
}
