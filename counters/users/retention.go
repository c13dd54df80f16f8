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

// The bounds of a retention matrix.
const (
	MaxCohorts = 100
	MaxPeriods = 100
)

// RetentionRequest asks how many users of a cohort come back. The range, of the cohorts, is widened to whole rows.
type RetentionRequest struct {
	About
	Cohort   Kind        // First: who had CohortEvent for the first time in the row; Active: who had it at all
	Start    string      // the event that makes a user one of the cohort
	Return   string      // the event by which a user is back; Any for any
	Interval period.Kind // Day, Week or Month
	Periods  int         // columns after the cohort's own; 0 = until now, at most 12
	Rolling  bool        // back in that period or any later one, instead of in just that one
}

// Retention answers a RetentionRequest.
type Retention struct {
	Query RetentionEcho `json:"query"`
	head
	Rows    []CohortRow `json:"rows"`
	Average []Average   `json:"average"` // by period, over the cohorts for which it is complete
}

// RetentionEcho is the question as it was understood.
type RetentionEcho struct {
	Echo
	Cohort  string `json:"cohort"` // first or active
	Start   string `json:"cohort_event"`
	Periods int    `json:"periods"`
	Kind    string `json:"kind"` // classic or rolling
}

// CohortRow is one cohort.
type CohortRow struct {
	span
	Known bool   `json:"known"` // false: the event has no sets so far back
	Size  uint64 `json:"size"`
	Cells []Cell `json:"cells"` // period 0 is the cohort's own; those that have not begun are left out
}

// Cell is how many of a cohort were back in a period.
type Cell struct {
	Users    uint64   `json:"users"`
	Share    *float64 `json:"share,omitempty"` // of the cohort; absent for an empty one
	Complete bool     `json:"complete"`        // everything received before the end of the period is counted
}

// Average is of one period. Cohorts count by their size.
type Average struct {
	Cohorts int      `json:"cohorts"` // complete and not empty
	Share   *float64 `json:"share,omitempty"`
}

// Retention answers a RetentionRequest. Errors: as Users, and Invalid (bad_cohort, bad_periods).
func (q *Query) Retention(ctx context.Context, r RetentionRequest) (*Retention, error) {
	if r.Interval == period.Hour {
		return nil, apperr.New(apperr.Invalid, "bad_interval", "Retention is counted by day, week or month.").On("interval")
	}
	start, err := r.metric("cohort_event", r.Start, "")
	if err != nil {
		return nil, err
	}
	back, err := r.metric("event", r.Return, "")
	if err != nil {
		return nil, err
	}
	if r.Periods < 0 || r.Periods > MaxPeriods {
		return nil, apperr.New(apperr.Invalid, "bad_periods", "periods is 1 to %d.", MaxPeriods).On("periods").Over(strconv.Itoa(MaxPeriods), "")
	}
	now := q.o.Clock.Now()
	from, to, err := r.span(now)
	if err != nil {
		return nil, err
	}
	from, to = period.Of(r.Interval, from, r.Zone).From, period.Of(r.Interval, to.Add(-1), r.Zone).To
	rows, err := period.Range(r.Interval, from, to, r.Zone, MaxCohorts)
	if err != nil {
		return nil, err
	}
	columns, end := r.columns(rows, now)
	key := fmt.Sprintf("retention %d %t %s %d %d %d %s %s %s", r.Cohort, r.Rolling, r.Interval, r.Periods, from.UnixMilli(), to.UnixMilli(), r.Zone, start, back)
	v, err := q.answer(ctx, r.Project, key, end, func(ctx context.Context) (memo.Answer, error) {
		a, err := q.retention(ctx, r, start, back, rows, columns)
		if err != nil {
			return memo.Answer{}, err
		}
		a.Query = RetentionEcho{
			Echo:   Echo{Project: r.Project, Event: r.Return, From: from.In(r.Zone), To: to.In(r.Zone), Interval: r.Interval},
			Cohort: [...]string{Active: "active", First: "first"}[r.Cohort], Start: r.Start, Periods: r.Periods, Kind: "classic",
		}
		if r.Rolling {
			a.Query.Kind = "rolling"
		}
		return memo.Answer{Value: a, Weight: len(rows) * len(columns), Final: a.complete(end)}, nil
	})
	if err != nil {
		return nil, err
	}
	return v.(*Retention), nil
}

// columns are the periods from the first cohort's own to the last that any cell can need, and the end of what is read. Those that have not
// begun are left out.
func (r *RetentionRequest) columns(rows []period.Bucket, now time.Time) ([]period.Bucket, time.Time) {
	open := r.Periods == 0
	if open {
		r.Periods = 12
	}
	columns := append([]period.Bucket(nil), rows...)
	last := rows[len(rows)-1]
	for range r.Periods {
		last = last.Next(r.Zone)
		columns = append(columns, last)
	}
	if r.Rolling { // whoever comes later is back as well
		for !last.To.After(now) && len(columns) < 2000 {
			last = last.Next(r.Zone)
			columns = append(columns, last)
		}
	}
	for len(columns) > len(rows) && columns[len(columns)-1].From.After(now) {
		columns = columns[:len(columns)-1]
	}
	return columns, columns[len(columns)-1].To
}

func (q *Query) retention(ctx context.Context, r RetentionRequest, start, back string, rows, columns []period.Bucket) (*Retention, error) {
	now := q.o.Clock.Now()
	c := newCollection(r.Zone)
	cohorts := c.days(r.Cohort, start, rows[0].From, rows[len(rows)-1].To)
	days := c.days(Active, back, rows[0].From, columns[len(columns)-1].To)

	a := &Retention{Rows: make([]CohortRow, len(rows))}
	for i := range rows {
		n := 0
		for n <= r.Periods && i+n < len(columns) && !columns[i+n].From.After(now) {
			n++
		}
		a.Rows[i].Cells = make([]Cell, n)
	}
	f, err := q.store.read(ctx, r.Project, 0, q.o.Shards, c, func(_ int, sets []*roaring.Bitmap) error {
		active := make([]*roaring.Bitmap, len(columns))
		for k := range columns {
			active[k] = union(days.of(sets, columns[k]))
		}
		if r.Rolling {
			for k := len(columns) - 2; k >= 0; k-- {
				active[k] = union([]*roaring.Bitmap{active[k], active[k+1]})
			}
		}
		for i, b := range rows {
			cohort := union(cohorts.of(sets, b))
			a.Rows[i].Size += cohort.GetCardinality()
			for n := range a.Rows[i].Cells {
				a.Rows[i].Cells[n].Users += cohort.AndCardinality(active[i+n])
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	a.head = q.head(r.About, f, start, back)
	type sum struct {
		cohorts     int
		back, whole uint64
	}
	sums := make([]sum, r.Periods+1)
	for i, b := range rows {
		row := &a.Rows[i]
		row.span = a.span(b, cohorts.restated(f, b))
		if row.Known = a.Since == nil || !b.From.Before(*a.Since); !row.Known {
			row.Size, row.Cells = 0, []Cell{}
			continue
		}
		for n := range row.Cells {
			cell := &row.Cells[n]
			cell.Share, cell.Complete = share(cell.Users, row.Size), a.complete(columns[i+n].To)
			if cell.Complete && row.Size > 0 {
				s := &sums[n]
				s.cohorts, s.back, s.whole = s.cohorts+1, s.back+cell.Users, s.whole+row.Size
			}
		}
	}
	for _, s := range sums {
		a.Average = append(a.Average, Average{s.cohorts, share(s.back, s.whole)})
	}
	return a, nil
}

// WriteCSV writes a line for each cell, which is what a pivot table wants.
func (a *Retention) WriteCSV(w io.Writer) error {
	t := newTable(w, "size", "period", "users", "share", "cell_complete")
	for i := range a.Rows {
		r := &a.Rows[i]
		for n := range r.Cells {
			c := &r.Cells[n]
			t.row(r.span, strconv.FormatUint(r.Size, 10), strconv.Itoa(n), strconv.FormatUint(c.Users, 10), decimal(c.Share), strconv.FormatBool(c.Complete))
		}
	}
	return t.end()
}
