package projection

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/apperr"
)

// What the queries of all rooms have in common.

// AsOf is a question on its way: see AskAsOf.
type AsOf struct {
	cmd  *redis.StringCmd
	name string
}

// AskAsOf asks in a pipeline up to when a shard of a projection has everything that was received. It is asked first, so that what is read
// behind it is at least as fresh.
func AskAsOf(ctx context.Context, pipe redis.Pipeliner, shard int, projection string) AsOf {
	return AsOf{pipe.HGet(ctx, MetaKey(shard, projection), "asof"), projection}
}

// Time is the answer, after Exec; zero = nothing was applied yet. Errors: those of ReadFault.
func (a AsOf) Time() (time.Time, error) {
	s, err := a.cmd.Result()
	if errors.Is(err, redis.Nil) {
		return time.Time{}, nil
	}
	var ms int64
	if err == nil {
		ms, err = strconv.ParseInt(s, 10, 64)
	}
	if err != nil {
		return time.Time{}, ReadFault(err, a.name, "damaged_count", "The place of the projection")
	}
	return time.UnixMilli(ms).UTC(), nil
}

// ErrDamaged is a stored value that is not what it should be.
var ErrDamaged = errors.New("damaged value")

// ReadFault tells what a failed read means for the client: a value that is not what it should be is damage, never zero (Internal, with the
// code), and Redis may be away (Unavailable, redis_unavailable). what begins a sentence: The count of 2015-05-17.
func ReadFault(err error, projection, code, what string) error {
	var reply redis.Error
	var number *strconv.NumError
	switch {
	case errors.As(err, &number), errors.Is(err, ErrDamaged),
		errors.As(err, &reply) && (strings.HasPrefix(reply.Error(), "WRONGTYPE") || strings.HasPrefix(reply.Error(), "INVALIDOBJ")):
		return apperr.New(apperr.Internal, code, "%s is damaged in Redis. Rebuild the projection %s: rollcall rebuild %[2]s.", what, projection).With(err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", projection, err)
	}
	return apperr.New(apperr.Unavailable, "redis_unavailable", "The numbers can't be read just now; events are still taken and will be counted.").
		After(time.Second).With(err)
}
