package counters

import (
	"encoding/csv"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/rollcall/rollcall/internal/period"
)

// Counts answers a CountsRequest. Its JSON is the shape of every series.
type Counts struct {
	Query    Echo       `json:"query"`
	Zone     string     `json:"zone"`
	AsOf     *time.Time `json:"as_of"` // everything received before it is counted; null = nothing was applied yet
	Rows     []Row      `json:"rows"`
	Total    Total      `json:"total"`
	Lifetime Lifetime   `json:"lifetime"`
	Kept     Kept       `json:"kept"`
}

// Echo is the question as it was understood.
type Echo struct {
	Project  string      `json:"project"`
	Event    string      `json:"event"`
	From     time.Time   `json:"from"`
	To       time.Time   `json:"to"`
	Interval period.Kind `json:"interval"`
}

// Row is one bucket, or the part of it that lies in the range: the range's edges may cut the first and the last.
type Row struct {
	Label    string    `json:"label"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	PV       int64     `json:"pv"`
	UV       *Estimate `json:"uv"`                // null if Expired
	Expired  bool      `json:"expired,omitempty"` // a sketch that UV needs has passed its keep time
	Complete bool      `json:"complete"`          // everything received before the row's end is counted
	Restated *Restated `json:"restated,omitempty"`
}

// Restated tells that days have changed by events that came when they were over. Imports are not meant: they are no news of the day.
type Restated struct {
	At      time.Time `json:"at"`      // when the last of them was received
	Changes int64     `json:"changes"` // how many: of PV events, of exact users those added to a day, over all days of the row
}

// Total is the whole range. Its UV is that of the union: a user of three days is one.
type Total struct {
	PV       int64     `json:"pv"`
	UV       *Estimate `json:"uv"`
	Expired  bool      `json:"expired,omitempty"`
	Complete bool      `json:"complete"`
	Restated *Restated `json:"restated,omitempty"`
}

// Lifetime is since the beginning of the project.
type Lifetime struct {
	PV int64 `json:"pv"`
}

// Kept tells how far back answers are sure: hours and days that ended before may have passed their keep time, unless they were imported later.
type Kept struct {
	Hours time.Time `json:"hours_since"` // UV by hour
	Days  time.Time `json:"days_since"`  // PV, and UV by day
}

// Estimate is a number of users. Method is "hll", Error the standard error as a share of Value.
type Estimate struct {
	Value  int64   `json:"value"`
	Method string  `json:"method"`
	Error  float64 `json:"error"`
}

// NewEstimate is what a sketch says.
func NewEstimate(n int64) *Estimate { return &Estimate{Value: n, Method: "hll", Error: uvError} }

// WriteCSV writes the rows for machines: no byte order mark, an expired UV is empty.
func (c *Counts) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	record := []string{"label", "from", "to", "pv", "uv", "uv_method", "uv_error", "complete", "restated"}
	if err := out.Write(record); err != nil {
		return err
	}
	for _, r := range c.Rows {
		record = append(record[:0], r.Label, r.From.Format(time.RFC3339), r.To.Format(time.RFC3339), strconv.FormatInt(r.PV, 10))
		if r.UV == nil {
			record = append(record, "", "", "")
		} else {
			record = append(record, strconv.FormatInt(r.UV.Value, 10), r.UV.Method, strconv.FormatFloat(r.UV.Error, 'g', -1, 64))
		}
		if err := out.Write(append(record, strconv.FormatBool(r.Complete), r.Restated.text())); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func (r *Restated) text() string {
	if r == nil {
		return ""
	}
	return r.At.Format(time.RFC3339)
}

// Cell makes a client's text safe in a spreadsheet: what it would run as a formula gets an apostrophe before it.
func Cell(s string) string {
	r, _ := utf8.DecodeRuneInString(s)
	switch r {
	case '=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠':
		return "'" + s
	}
	return s
}
