package users

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/memo"
	"github.com/rollcall/rollcall/internal/period"
)

// The rolling windows, in days.
const (
	week  = 7
	month = 30
)

// ActiveRequest asks who was active, and where they come from. The range is widened to whole rows.
type ActiveRequest struct {
	About
	Event    string
	Interval period.Kind // Day, Week or Month
}

// ActiveUsers answers an ActiveRequest.
type ActiveUsers struct {
	Query Echo `json:"query"`
	head
	Rows []ActiveRow `json:"rows"`
}

// ActiveRow is one day, week or month. Active = New + Returning + Resurrected.
type ActiveRow struct {
	span
	// What is null is not known: it takes days on which the event had no sets.
	Active      *uint64 `json:"active"`      // DAU, WAU or MAU of the calendar
	New         *uint64 `json:"new"`         // the first time ever, or since head.Since
	Returning   *uint64 `json:"returning"`   // active in the row before too
	Resurrected *uint64 `json:"resurrected"` // came before, but not in the row before
	Dormant     *uint64 `json:"dormant"`     // active in the row before and not in this one
	Rolling7    *uint64 `json:"rolling_7"`   // active in the 7 days that end with the row
	Rolling30   *uint64 `json:"rolling_30"`  // in the 30 days
	// Stickiness is mean DAU ÷ MAU: of a month its own, else of the 30 days that end with the row. Absent without users, and when not known.
	Stickiness *float64 `json:"stickiness,omitempty"`
}

// Active answers an ActiveRequest. Errors: as Users.
func (q *Query) Active(ctx context.Context, r ActiveRequest) (*ActiveUsers, error) {
	if r.Interval == period.Hour {
		return nil, apperr.New(apperr.Invalid, "bad_interval", "Active users are counted by day, week or month.").On("interval")
	}
	metric, err := r.metric("event", r.Event, "")
	if err != nil {
		return nil, err
	}
	from, to, err := r.span(q.o.Clock.Now())
	if err != nil {
		return nil, err
	}
	from, to = period.Of(r.Interval, from, r.Zone).From, period.Of(r.Interval, to.Add(-1), r.Zone).To
	rows, err := r.rows(r.Interval, from, to)
	if err != nil {
		return nil, err
	}
	key := fmt.Sprintf("active %s %d %d %s %s", r.Interval, from.UnixMilli(), to.UnixMilli(), r.Zone, metric)
	v, err := q.answer(ctx, r.Project, key, to, func(ctx context.Context) (memo.Answer, error) {
		a, err := q.active(ctx, r, metric, rows)
		if err != nil {
			return memo.Answer{}, err
		}
		a.Query = Echo{Project: r.Project, Event: r.Event, From: from.In(r.Zone), To: to.In(r.Zone), Interval: r.Interval}
		return memo.Answer{Value: a, Weight: len(rows), Final: a.complete(to)}, nil
	})
	if err != nil {
		return nil, err
	}
	return v.(*ActiveUsers), nil
}

func (q *Query) active(ctx context.Context, r ActiveRequest, metric string, rows []period.Bucket) (*ActiveUsers, error) {
	before := rows[0].Prev(r.Zone)
	to := rows[len(rows)-1].To
	since := earlier(before.From, daysBefore(rows[0].To, month, r.Zone))
	c := newCollection(r.Zone)
	days := c.days(Active, metric, since, to)
	firsts := c.days(First, metric, rows[0].From, to)

	type tally struct{ active, fresh, stayed, last, rolling7, rolling30, daily uint64 }
	tallies := make([]tally, len(rows)) // daily: the sum over the days that the stickiness is of
	f, err := q.store.read(ctx, r.Project, 0, q.o.Shards, c, func(_ int, sets []*roaring.Bitmap) error {
		all := make([]*roaring.Bitmap, len(days.at))
		daily := make([]uint64, len(days.at))
		for i, at := range days.at {
			all[i] = sets[at]
			daily[i] = sets[at].GetCardinality()
		}
		rolling7, rolling30 := rolling(all, week), rolling(all, month)
		last := union(days.of(sets, before))
		for i, b := range rows {
			t := &tallies[i]
			now := union(days.of(sets, b))
			t.active += now.GetCardinality()
			t.stayed += now.AndCardinality(last)
			t.last += last.GetCardinality()
			for _, s := range firsts.of(sets, b) {
				t.fresh += s.GetCardinality()
			}
			lo, hi := days.in(b)
			t.rolling7 += rolling7[hi-1]
			t.rolling30 += rolling30[hi-1]
			if r.Interval != period.Month {
				lo = max(hi-month, 0)
			}
			for _, d := range daily[lo:hi] {
				t.daily += d
			}
			last = now
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	a := &ActiveUsers{head: q.head(r.About, f, metric), Rows: make([]ActiveRow, len(rows))}
	for i, b := range rows {
		row, t := &a.Rows[i], &tallies[i]
		row.span = a.span(b, days.restated(f, b))
		row.Active, row.New = a.since(b.From, t.active), a.since(b.From, t.fresh)
		prev := b.Prev(r.Zone).From
		row.Returning, row.Resurrected, row.Dormant = a.since(prev, t.stayed), a.since(prev, t.active-t.fresh-t.stayed), a.since(prev, t.last-t.stayed)
		row.Rolling7 = a.since(daysBefore(b.To, week, r.Zone), t.rolling7)
		begin := daysBefore(b.To, month, r.Zone)
		row.Rolling30 = a.since(begin, t.rolling30)
		n, whole := uint64(month), t.rolling30
		if r.Interval == period.Month {
			lo, hi := days.in(b)
			n, whole, begin = uint64(hi-lo), t.active, b.From
		}
		if a.since(begin, 0) != nil {
			row.Stickiness = share(t.daily, n*whole)
		}
	}
	return a, nil
}

// daysBefore is the begin of the day that is n days before the one that ends at an instant; of the same calendar, not n times 24 hours.
func daysBefore(end time.Time, n int, loc *time.Location) time.Time {
	d := period.Of(period.Day, end.Add(-1), loc)
	for range n - 1 {
		d = d.Prev(loc)
	}
	return d.From
}

// rolling is, for each day, how many users the days from width-1 before it to itself have together. The days are cut into blocks of width: a
// window is the end of one block and the beginning of the next, so that each day costs two unions however wide the window is.
func rolling(days []*roaring.Bitmap, width int) []uint64 {
	counts := make([]uint64, len(days))
	tails := make([]*roaring.Bitmap, width) // of the block before: from a day to the block's end
	for begin := 0; begin < len(days); begin += width {
		block := days[begin:min(begin+width, len(days))]
		head := none
		for i, d := range block {
			head = union([]*roaring.Bitmap{head, d})
			if begin == 0 || i == width-1 {
				counts[begin+i] = head.GetCardinality()
			} else {
				counts[begin+i] = head.OrCardinality(tails[i+1])
			}
		}
		if len(block) == width {
			tail := none
			for i := width - 1; i >= 0; i-- {
				tail = union([]*roaring.Bitmap{tail, block[i]})
				tails[i] = tail
			}
		}
	}
	return counts
}

// WriteCSV writes the rows for machines.
func (a *ActiveUsers) WriteCSV(w io.Writer) error {
	t := newTable(w, "active", "new", "returning", "resurrected", "dormant", "rolling_7", "rolling_30", "stickiness")
	for i := range a.Rows {
		r := &a.Rows[i]
		cells := make([]string, 8)
		for i, n := range []*uint64{r.Active, r.New, r.Returning, r.Resurrected, r.Dormant, r.Rolling7, r.Rolling30} {
			if n != nil {
				cells[i] = strconv.FormatUint(*n, 10)
			}
		}
		cells[7] = decimal(r.Stickiness)
		t.row(r.span, cells...)
	}
	return t.end()
}
