package drops

import (
	"encoding/csv"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Drops answers a Request. Its JSON is the shape of every series.
type Drops struct {
	Query Echo       `json:"query"`
	Zone  string     `json:"zone"`
	AsOf  *time.Time `json:"as_of"` // everything received before it is accounted for; null = nothing was applied yet
	Rows  []Row      `json:"rows"`
	Total Total      `json:"total"`
	Kept  Kept       `json:"kept"`
}

// Echo is the question as it was understood.
type Echo struct {
	Project  string    `json:"project"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Interval string    `json:"interval"`
}

// Row is one minute, hour or day, or the part of it that lies in the range.
type Row struct {
	Label string    `json:"label"`
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	Sums
	Expired  bool `json:"expired,omitempty"` // past its keep time: the numbers are not known any more
	Complete bool `json:"complete"`          // everything received before the row's end is accounted for
}

// Total is the whole range.
type Total struct {
	Sums
	Expired  bool `json:"expired,omitempty"` // some rows are
	Complete bool `json:"complete"`
}

// Kept tells how far back answers reach.
type Kept struct {
	Minutes time.Time `json:"minutes_since"`
	Hours   time.Time `json:"hours_since"` // hours and days
}

// WriteCSV writes the rows for machines: a column for each code that the range has, none for the others. An expired row has no numbers.
func (d *Drops) WriteCSV(w io.Writer) error {
	codes := slices.Sorted(maps.Keys(d.Total.Rejected))
	record := []string{"label", "from", "to", "received", "accepted", "duplicates", "bots", "rejected", "complete"}
	for _, code := range codes {
		record = append(record, "rejected_"+code)
	}
	out := csv.NewWriter(w)
	if err := out.Write(record); err != nil {
		return err
	}
	for i := range d.Rows {
		r := &d.Rows[i]
		record = append(record[:0], r.Label, r.From.Format(time.RFC3339), r.To.Format(time.RFC3339))
		number := func(n int64) {
			if r.Expired {
				record = append(record, "")
				return
			}
			record = append(record, strconv.FormatInt(n, 10))
		}
		for _, n := range []int64{r.Received, r.Accepted, r.Duplicates, r.Bots, r.RejectedTotal()} {
			number(n)
		}
		record = append(record, strconv.FormatBool(r.Complete))
		for _, code := range codes {
			number(r.Rejected[code])
		}
		if err := out.Write(record); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}
