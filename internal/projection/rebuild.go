package projection

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/ident"
	"github.com/rollcall/rollcall/internal/journal"
)

// Rebuild empties projections: their keys and offsets go, and the next projector reads the journal from its first record; records is how many
// that are. No projector may run meanwhile. It refuses when the journal no longer has its first record, since what is gone could not be
// counted again, and when any record of it can't be read: all are read before anything is deleted.
//
// It can be stopped at any moment and begun again: until the end the shards are marked dirty, and nobody counts on top of them.
func Rebuild(ctx context.Context, j *journal.Journal, rdb redis.UniversalClient, shards int, names ...string) (records uint64, err error) {
	first, last, err := j.Bounds(ctx)
	if err != nil {
		return 0, fmt.Errorf("journal bounds: %w", err)
	}
	if first > 1 {
		return 0, fmt.Errorf("%w: it begins at record %d", ErrTrimmed, first)
	}
	return rebuild(ctx, j, rdb, shards, names, 1, last)
}

// ErrTrimmed is a rebuild from a journal that has lost its first records.
var ErrTrimmed = errors.New("the journal no longer has what came first and can't be counted again, so nothing was changed")

// RebuildRest empties a Joiner, which the next projector makes anew from what the journal still has; what came before is lost to it.
func RebuildRest(ctx context.Context, j *journal.Journal, rdb redis.UniversalClient, shards int, name string) (records uint64, err error) {
	first, last, err := j.Bounds(ctx)
	if err != nil {
		return 0, fmt.Errorf("journal bounds: %w", err)
	}
	return rebuild(ctx, j, rdb, shards, []string{name}, max(first, 1), last)
}

func rebuild(ctx context.Context, j *journal.Journal, rdb redis.UniversalClient, shards int, names []string, first, last uint64) (records uint64, err error) {
	if err := readable(ctx, j, first, last); err != nil {
		return 0, fmt.Errorf("the journal can't be counted again, so nothing was changed: %w", err)
	}
	for _, name := range names {
		for shard := range shards {
			if err := rdb.HSet(ctx, MetaKey(shard, name), "dirty", "a rebuild did not end").Err(); err != nil {
				return 0, fmt.Errorf("mark %s: %w", MetaKey(shard, name), err)
			}
		}
	}
	for _, name := range names {
		for shard := range shards {
			if err := unlinkAll(ctx, rdb, "rc:{"+ident.Tag(shard)+"}:"+name+":*"); err != nil {
				return 0, err
			}
		}
	}
	for _, name := range names {
		for shard := range shards {
			if err := rdb.Del(ctx, MetaKey(shard, name)).Err(); err != nil {
				return 0, fmt.Errorf("delete %s: %w", MetaKey(shard, name), err)
			}
		}
	}
	return last + 1 - first, nil
}

// readable reads and decodes every record from first to last.
func readable(ctx context.Context, j *journal.Journal, first, last uint64) error {
	if last < first {
		return nil
	}
	r, err := j.Read(ctx, first)
	if err != nil {
		return err
	}
	defer r.Close()
	var rec event.Record
	for seq := first; seq <= last; seq++ {
		entry, err := r.Next(ctx)
		if err != nil {
			return err
		}
		if err := rec.Decode(entry.Data); err != nil {
			return fmt.Errorf("record %d: %w", entry.Seq, err)
		}
	}
	return nil
}

// unlinkAll deletes the keys that match, on whichever node they are.
func unlinkAll(ctx context.Context, rdb redis.UniversalClient, pattern string) error {
	on := func(ctx context.Context, c *redis.Client) error {
		for cursor := uint64(0); ; {
			keys, next, err := c.Scan(ctx, cursor, pattern, 1000).Result()
			if err != nil {
				return fmt.Errorf("scan %s: %w", pattern, err)
			}
			if len(keys) > 0 { // all of one shard, hence of one slot
				if err := c.Unlink(ctx, keys...).Err(); err != nil {
					return fmt.Errorf("unlink %s: %w", pattern, err)
				}
			}
			if next == 0 {
				return nil
			}
			cursor = next
		}
	}
	switch c := rdb.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, on)
	case *redis.Client:
		return on(ctx, c)
	}
	return fmt.Errorf("rebuild over a %T is not known", rdb)
}
