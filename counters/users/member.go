package users

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/event"
)

// Membership answers whether a user is one of an expression's.
type Membership struct {
	Project string     `json:"project"`
	User    string     `json:"user"`
	Known   bool       `json:"known"` // the project has had the user
	Member  bool       `json:"member"`
	AsOf    *time.Time `json:"as_of"`
}

// Member looks for one user. Errors: as Overlap, and Invalid (bad_user).
func (q *Query) Member(ctx context.Context, r OverlapRequest, user string) (*Membership, error) {
	if user == "" || len(user) > event.MaxUser {
		return nil, apperr.New(apperr.Invalid, "bad_user", "A user has 1 to %d bytes.", event.MaxUser).On("user")
	}
	p, err := q.prepare(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, q.o.Limit)
	defer cancel()
	m := &Membership{Project: r.Project, User: user}
	absent, ticket := q.o.Absent.Has(r.Project, user)
	if absent {
		now := q.o.Clock.Now().UTC()
		m.AsOf = &now
		return m, nil
	}
	shard, o, known, err := q.dict.LookUp(ctx, r.Project, user)
	if err != nil {
		return nil, err
	}
	m.Known = known
	f, _, err := q.evaluate(ctx, r.Project, shard, shard+1, p, func(_ int, set *roaring.Bitmap) error {
		m.Member = known && set.Contains(o)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !f.asof.IsZero() {
		m.AsOf = &f.asof
	}
	if !known {
		q.o.Absent.Note(r.Project, user, ticket)
	}
	return m, nil
}

// MaxMembers is the most users of one page.
const MaxMembers = 1000

// Members is a page of the users of an expression. The order says nothing, but is always the same.
type Members struct {
	Project string     `json:"project"`
	Users   []string   `json:"users"`
	Next    string     `json:"next,omitempty"` // cursor of the next page; absent on the last one
	AsOf    *time.Time `json:"as_of"`
}

// Members lists users, from the cursor of an earlier page on. Who becomes a member meanwhile may be on a page or not; nobody is there twice.
// Errors: as Overlap, and Invalid (bad_limit, bad_cursor).
func (q *Query) Members(ctx context.Context, r OverlapRequest, limit int, cursor string) (*Members, error) {
	if limit < 1 || limit > MaxMembers {
		return nil, apperr.New(apperr.Invalid, "bad_limit", "limit is 1 to %d.", MaxMembers).On("limit").Over(strconv.Itoa(MaxMembers), "")
	}
	from, after, err := parseCursor(cursor, q.o.Shards)
	if err != nil {
		return nil, err
	}
	p, err := q.prepare(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, q.o.Limit)
	defer cancel()
	m := &Members{Project: r.Project, Users: []string{}}
	f, _, err := q.evaluate(ctx, r.Project, from, q.o.Shards, p, func(shard int, set *roaring.Bitmap) error {
		it := set.Iterator()
		if shard == from {
			it.AdvanceIfNeeded(after)
		}
		var page []uint32
		for it.HasNext() && len(m.Users)+len(page) < limit {
			page = append(page, it.Next())
		}
		if it.HasNext() {
			m.Next = cursorOf(shard, it.PeekNext())
		}
		names, err := q.dict.Names(ctx, r.Project, shard, page)
		m.Users = append(m.Users, names...)
		if err == nil && m.Next != "" {
			return errEnough
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if !f.asof.IsZero() {
		m.AsOf = &f.asof
	}
	return m, nil
}

// A cursor is the shard and the ordinal that the next page begins with.
func cursorOf(shard int, ordinal uint32) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "m1.%d.%d", shard, ordinal))
}

func parseCursor(s string, shards int) (shard int, ordinal uint32, err error) {
	if s == "" {
		return 0, 0, nil
	}
	bad := apperr.New(apperr.Invalid, "bad_cursor", "This cursor is none of rollcall's: take next of the page before.").On("cursor")
	b, err := base64.RawURLEncoding.DecodeString(s)
	parts := strings.Split(string(b), ".")
	if err != nil || len(parts) != 3 || parts[0] != "m1" {
		return 0, 0, bad
	}
	shard, err = strconv.Atoi(parts[1])
	o, err2 := strconv.ParseUint(parts[2], 10, 32)
	if err != nil || err2 != nil || shard < 0 || shard >= shards {
		return 0, 0, bad
	}
	return shard, uint32(o), nil
}
