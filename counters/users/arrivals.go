package users

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/ordinal"
	"github.com/rollcall/rollcall/internal/projection"
)

// arrivals are the new members of a batch, and on which day each user came first.
type arrivals struct {
	list  []arrival
	users map[userAt]*began
	order []*began
}

type arrival struct {
	set   *set // Active
	visit visit
	user  *began
}

type userAt struct {
	metric  *metric
	shard   int
	ordinal uint32
}

// began is a user of a metric.
type began struct {
	userAt
	known bool   // there is nothing in Redis to be read
	day   uint16 // number of the first day; 0 = never came
	moved bool   // day is to be written
}

func (a *arrivals) add(s *set, v visit) {
	at := userAt{s.metric, s.shard, v.ordinal}
	u := a.users[at]
	if u == nil {
		if a.users == nil {
			a.users = map[userAt]*began{}
		}
		u = &began{userAt: at}
		a.users[at] = u
		a.order = append(a.order, u)
	}
	u.known = u.known || v.first
	a.list = append(a.list, arrival{s, v, u})
}

// segmentKey is where the user's first day stands.
func (u *began) segmentKey() (key string, seg ordinal.Segment, at uint32) {
	seg, at = ordinal.SegmentOf(u.ordinal)
	return beganKey(u.metric.bases[u.shard], u.metric.name, seg.Number), seg, at
}

// load reads the first days of those who may have one.
func (a *arrivals) load(ctx context.Context, tx *projection.Tx) error {
	var wanted []*began
	for _, u := range a.order {
		if !u.known {
			wanted = append(wanted, u)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	rdb, err := tx.Read(ctx)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(wanted, askAtOnce) {
		gets := make([]*redis.StringCmd, len(part))
		_, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i, u := range part {
				key, _, at := u.segmentKey()
				gets[i] = pipe.GetRange(ctx, key, int64(2*at), int64(2*at+1))
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("load first days of users: %w", err)
		}
		for i, u := range part {
			switch b := gets[i].Val(); len(b) {
			case 0:
			case 2:
				u.day = binary.LittleEndian.Uint16([]byte(b))
			default:
				key, _, _ := u.segmentKey()
				return fmt.Errorf("load %s: cut short: %w; rebuild the projection %s", key, projection.ErrDamaged, Name)
			}
		}
	}
	return nil
}

// write stores the first days that have changed, those of ordinals that follow each other in one piece.
func (a *arrivals) write(p *Projection, tx *projection.Tx) {
	moved := slices.DeleteFunc(a.order, func(u *began) bool { return !u.moved })
	group := map[*metric]int{} // in the order of the batch
	for _, u := range moved {
		if _, ok := group[u.metric]; !ok {
			group[u.metric] = len(group)
		}
	}
	slices.SortFunc(moved, func(x, y *began) int {
		return cmp.Or(cmp.Compare(group[x.metric], group[y.metric]), cmp.Compare(x.shard, y.shard), cmp.Compare(x.ordinal, y.ordinal))
	})
	for len(moved) > 0 {
		key, seg, at := moved[0].segmentKey()
		n := 1
		for n < len(moved) && int(at)+n < int(seg.Size) && moved[n].userAt == (userAt{moved[0].metric, moved[0].shard, moved[0].ordinal + uint32(n)}) {
			n++
		}
		if _, ok := p.segments[key]; !ok {
			// Redis doubles a string that grows, and allocates one that is made by the size it gets: the byte of padding makes all of it.
			p.segments[key] = struct{}{}
			tx.Do(moved[0].shard, "SETBIT", key, int64(seg.Size)*16, 0)
		}
		var days []byte
		for _, u := range moved[:n] {
			days = binary.LittleEndian.AppendUint16(days, u.day)
		}
		tx.Do(moved[0].shard, "SETRANGE", key, int64(2*at), days)
		moved = moved[n:]
	}
}
