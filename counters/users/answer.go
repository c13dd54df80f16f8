package users

import (
	"encoding/csv"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/internal/period"
)

// head begins every answer.
type head struct {
	loc   *time.Location
	Zone  string     `json:"zone"`
	AsOf  *time.Time `json:"as_of"`                 // everything received before it is counted; null = nothing was applied yet
	Kept  time.Time  `json:"kept_since"`            // days that ended before may have passed their keep time
	Since *time.Time `json:"exact_since,omitempty"` // the event has sets only since then, so earlier rows are not known
}

// span is what every row has.
type span struct {
	Label    string             `json:"label"`
	From     time.Time          `json:"from"`
	To       time.Time          `json:"to"`
	Complete bool               `json:"complete"`           // everything received before the row's end is counted
	Restated *counters.Restated `json:"restated,omitempty"` // set if events came when a day of the row was over
}

// Number is a number of users.
type Number struct {
	Value  int64   `json:"value"`
	Method Method  `json:"method"`
	Error  float64 `json:"error"` // standard error as a share of Value; 0 = exact
}

// Users answers a Request.
type Users struct {
	Query Echo `json:"query"`
	head
	Rows  []Row `json:"rows"`
	Total Row   `json:"total"` // of the union: a user of three days is one
}

// Echo is the question as it was understood.
type Echo struct {
	Project  string      `json:"project"`
	Event    string      `json:"event"`
	From     time.Time   `json:"from"`
	To       time.Time   `json:"to"`
	Interval period.Kind `json:"interval"`
	Method   Method      `json:"method,omitempty"`
}

// Row is the users of one bucket, or of the part of it that lies in the range.
type Row struct {
	span
	Exact *Number `json:"exact,omitempty"` // absent if not asked for, or not known
	HLL   *Number `json:"hll,omitempty"`   // absent if not asked for, or no longer kept
	// Differs is (HLL − exact) / exact: what the sketch's error really is, beside the standard error that it promises.
	Differs *float64 `json:"real_error,omitempty"`
}

// with adds the sketches' numbers. u is empty if nothing else was asked for.
func (u *Users) with(c *counters.Counts, differs func(float64)) *Users {
	if u.Rows == nil {
		u.head = head{Zone: c.Zone, AsOf: c.AsOf, Kept: c.Kept.Days}
		u.Query = Echo{Project: c.Query.Project, Event: c.Query.Event, From: c.Query.From, To: c.Query.To, Interval: c.Query.Interval}
		for _, r := range c.Rows {
			u.Rows = append(u.Rows, Row{span: span{Label: r.Label, From: r.From, To: r.To, Complete: r.Complete}})
		}
		u.Total.span = span{From: c.Query.From, To: c.Query.To, Complete: c.Total.Complete}
	}
	both := *u
	both.Rows = make([]Row, len(u.Rows))
	for i, r := range u.Rows {
		both.Rows[i] = r.with(c.Rows[i].UV, differs)
	}
	both.Total = u.Total.with(c.Total.UV, differs)
	return &both
}

func (r Row) with(e *counters.Estimate, differs func(float64)) Row {
	if e == nil {
		return r
	}
	r.HLL = &Number{e.Value, HLL, e.Error}
	if r.Exact != nil && r.Exact.Value > 0 && r.Complete {
		d := math.Round(float64(e.Value-r.Exact.Value)/float64(r.Exact.Value)*1e6) / 1e6
		r.Differs = &d
		differs(math.Abs(d))
	}
	return r
}

// WriteCSV writes the rows for machines: no byte order mark, what is not known is empty.
func (u *Users) WriteCSV(w io.Writer) error {
	t := newTable(w, "exact", "hll", "hll_error", "real_error")
	for i := range u.Rows {
		r := &u.Rows[i]
		hll, promised := r.HLL.text(), ""
		if r.HLL != nil {
			promised = decimal(&r.HLL.Error)
		}
		t.row(r.span, r.Exact.text(), hll, promised, decimal(r.Differs))
	}
	return t.end()
}

func (n *Number) text() string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(n.Value, 10)
}

func decimal(x *float64) string {
	if x == nil {
		return ""
	}
	return strconv.FormatFloat(*x, 'g', -1, 64)
}

// table writes CSV with what every row has.
type table struct {
	out *csv.Writer
	err error
}

func newTable(w io.Writer, columns ...string) *table {
	t := &table{out: csv.NewWriter(w)}
	t.write(append(append([]string{"label", "from", "to"}, columns...), "complete", "restated"))
	return t
}

func (t *table) write(record []string) {
	if t.err == nil {
		t.err = t.out.Write(record)
	}
}

func (t *table) row(s span, cells ...string) {
	restated := ""
	if s.Restated != nil {
		restated = s.Restated.At.Format(time.RFC3339)
	}
	record := append([]string{s.Label, s.From.Format(time.RFC3339), s.To.Format(time.RFC3339)}, cells...)
	t.write(append(record, strconv.FormatBool(s.Complete), restated))
}

func (t *table) end() error {
	t.out.Flush()
	if t.err == nil {
		t.err = t.out.Error()
	}
	return t.err
}
