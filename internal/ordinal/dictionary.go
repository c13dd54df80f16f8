package ordinal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/projection"
)

func putTag(dst []byte, tag uint32) { binary.LittleEndian.PutUint32(dst, tag) }

// Dictionary reads what the projection stores. It never writes. Safe for concurrent use. Errors: apperr Internal (damaged_dictionary),
// Unavailable (redis_unavailable).
type Dictionary struct {
	rdb    redis.UniversalClient
	shards int
}

// NewDictionary makes a Dictionary over a client that may be a replica's.
func NewDictionary(rdb redis.UniversalClient, shards int) *Dictionary {
	return &Dictionary{rdb, shards}
}

// Counts is how many users a project has had, by shard.
func (d *Dictionary) Counts(ctx context.Context, project string) ([]uint32, error) {
	cmds := make([]*redis.StringCmd, d.shards)
	_, err := d.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for shard := range cmds {
			cmds[shard] = pipe.Get(ctx, countKey(keyBase(shard, project)))
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, readFault(err)
	}
	counts := make([]uint32, d.shards)
	for shard, cmd := range cmds {
		if counts[shard], err = readCount(cmd); err != nil {
			return nil, readFault(err)
		}
	}
	return counts, nil
}

// LookUp finds a user; known is false if the project never had it.
func (d *Dictionary) LookUp(ctx context.Context, project, user string) (shard int, ordinal uint32, known bool, err error) {
	at := placeOf(d.shards, project, user)
	base := keyBase(at.shard, project)
	n, err := readCount(d.rdb.Get(ctx, countKey(base)))
	if err != nil || n == 0 {
		return at.shard, 0, false, readFault(err)
	}
	replies := make([]*redis.StringCmd, levels(n))
	field := fieldOf(user)
	_, err = d.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for level := range replies {
			replies[level] = pipe.HGet(ctx, keyOf(base, level, at.tag, user), field)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return at.shard, 0, false, readFault(err)
	}
	for level, r := range replies {
		text, err := r.Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return at.shard, 0, false, readFault(err)
		}
		// A user who came meanwhile may stand beyond n: that is no damage here.
		o, err := strconv.ParseUint(text, 10, 32)
		if err != nil || o >= MaxUsers || levelOf(uint32(o)) != level {
			return at.shard, 0, false, readFault(fmt.Errorf("a user has the ordinal %q at level %d: %w", text, level, projection.ErrDamaged))
		}
		return at.shard, uint32(o), true, nil
	}
	return at.shard, 0, false, nil
}

// Names gives the users of ordinals of one shard, in their order. All must have been given.
func (d *Dictionary) Names(ctx context.Context, project string, shard int, ordinals []uint32) ([]string, error) {
	names := make([]string, 0, len(ordinals))
	for part := range slices.Chunk(ordinals, askAtOnce) {
		found, err := d.names(ctx, keyBase(shard, project), part)
		if err != nil {
			return nil, readFault(err)
		}
		names = append(names, found...)
	}
	return names, nil
}

// names reads the tags, and then the buckets that they name.
func (d *Dictionary) names(ctx context.Context, base string, ordinals []uint32) ([]string, error) {
	tags := make([]*redis.StringCmd, len(ordinals))
	_, err := d.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, o := range ordinals {
			seg, at := SegmentOf(o)
			tags[i] = pipe.GetRange(ctx, tagKey(base, seg.Number), int64(4*at), int64(4*at+3))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	type bucket struct {
		level  int
		number uint32
	}
	var buckets []bucket
	asked := map[bucket]bool{}
	for i, o := range ordinals {
		tag := tags[i].Val()
		if len(tag) != 4 {
			return nil, fmt.Errorf("ordinal %d has no tag: %w", o, projection.ErrDamaged)
		}
		level := levelOf(o)
		b := bucket{level, bucketOf(level, binary.LittleEndian.Uint32([]byte(tag)))}
		if !asked[b] {
			asked[b] = true
			buckets = append(buckets, b)
		}
	}
	users := make(map[uint32]string, len(ordinals))
	for _, o := range ordinals {
		users[o] = ""
	}
	for part := range slices.Chunk(buckets, askAtOnce/2) {
		var replies []*redis.MapStringStringCmd
		_, err := d.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, b := range part {
				replies = append(replies, pipe.HGetAll(ctx, bucketKey(base, b.level, b.number)), pipe.HGetAll(ctx, longKey(base, b.level, b.number)))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		for _, r := range replies {
			for field, text := range r.Val() {
				o, err := strconv.ParseUint(text, 10, 32)
				user, ok := userOf(field)
				if err != nil || !ok {
					return nil, fmt.Errorf("%v gives a user the ordinal %q: %w", r.Args()[1], text, projection.ErrDamaged)
				}
				if _, wanted := users[uint32(o)]; wanted {
					users[uint32(o)] = user
				}
			}
		}
	}
	names := make([]string, len(ordinals))
	for i, o := range ordinals {
		if names[i] = users[o]; names[i] == "" {
			return nil, fmt.Errorf("ordinal %d of %s… has no user: %w", o, base, projection.ErrDamaged)
		}
	}
	return names, nil
}

func readFault(err error) error {
	if err == nil {
		return nil
	}
	var known *apperr.Error
	if errors.As(err, &known) {
		return err
	}
	return projection.ReadFault(err, Name, "damaged_dictionary", "The dictionary of users")
}
