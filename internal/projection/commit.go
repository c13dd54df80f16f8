package projection

import (
	"context"
	_ "embed" // scripts
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

var (
	//go:embed commit.lua
	commitSource string
	//go:embed claim.lua
	claimSource string
	//go:embed renew.lua
	renewSource string

	commitScript = redis.NewScript(commitSource)
	claimScript  = redis.NewScript(claimSource)
	renewScript  = redis.NewScript(renewSource)
)

// commit is one batch on its way into Redis.
type commit struct {
	txs     []*Tx // one a projection
	upto    uint64
	sum     uint32 // of the record at upto
	asof    int64
	events  int
	batch   []Record
	records []*record // given back to the pool when the commit is in
	notices []notice
	done    chan struct{} // closed when the commit is in
}

// place is where a shard of a projection stands.
type place struct {
	Offset uint64
	Sum    string
}

// claim takes every shard of a projection for this epoch and returns where each stands; begin is where one stands that is new.
func (e *epoch) claim(ctx context.Context, projection string, begin uint64) ([]place, error) {
	places := make([]place, e.p.o.Shards)
	for shard := range places {
		key := MetaKey(shard, projection)
		reply, err := claimScript.Run(ctx, e.p.o.Redis, []string{key}, e.token, e.p.o.Journal.Identity(), begin).Slice()
		if err != nil {
			return nil, fmt.Errorf("claim %s: %w", key, err)
		}
		if len(reply) != 5 {
			return nil, fmt.Errorf("claim %s: unexpected reply", key)
		}
		var words [5]string
		for i := range reply {
			words[i] = fmt.Sprint(reply[i])
		}
		claimed, offset, sum, journal, dirty := words[0] == "1", words[1], words[2], words[3], words[4]
		switch {
		case dirty != "":
			return nil, halt("%s is half written (%s): rebuild the projection", key, dirty)
		case !claimed:
			return nil, halt("%s was written from journal %s, this journal is %s: use the data that belong together, or rebuild the projection",
				key, journal, e.p.o.Journal.Identity())
		}
		places[shard].Sum = sum
		if places[shard].Offset, err = strconv.ParseUint(offset, 10, 64); err != nil {
			return nil, halt("%s holds an offset that is no number (%q): rebuild the projection", key, offset)
		}
	}
	return places, nil
}

// write commits every shard that the batch touches, side by side. On an error some shards may be in and others not; the next
// epoch reads from Redis which.
func (e *epoch) write(ctx context.Context, c *commit) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	sum := strconv.FormatUint(uint64(c.sum), 16)
	for i, tx := range c.txs {
		name := e.p.o.Projections[i].Name()
		for shard := range tx.shards {
			s := &tx.shards[shard]
			if !s.touched || s.applied > c.upto {
				continue
			}
			g.Go(func() error {
				args := make([]any, 0, 5+s.words)
				args = append(args, e.token, s.applied, c.upto, sum, c.asof)
				for _, cmd := range s.cmds {
					args = append(args, len(cmd))
					args = append(args, cmd...)
				}
				if err := commitScript.Run(ctx, e.p.o.Redis, []string{MetaKey(shard, name)}, args...).Err(); err != nil {
					return commitError(MetaKey(shard, name), err)
				}
				return nil
			})
		}
	}
	return g.Wait()
}

// commitError sorts a failed commit: a half-written shard stops the projection, everything else is settled by reading the
// offset again.
func commitError(key string, err error) error {
	var fault redis.Error
	if errors.As(err, &fault) && strings.HasPrefix(fault.Error(), "DIRTY ") {
		return halt("%s is half written (%s): rebuild the projection", key, strings.TrimPrefix(fault.Error(), "DIRTY "))
	}
	return fmt.Errorf("commit %s: %w", key, err)
}

// haltError stops a projection until somebody has acted: going on could lose or double events.
type haltError struct{ reason string }

func (h *haltError) Error() string { return h.reason }

func halt(format string, args ...any) error { return &haltError{fmt.Sprintf(format, args...)} }
