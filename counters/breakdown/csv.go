package breakdown

import (
	"encoding/csv"
	"io"
	"strconv"
	"time"

	"github.com/rollcall/rollcall/counters"
)

// WriteCSV writes a line for each value of each row, and for what is left: kind is value, rest, other or none. Without rows it is the whole
// range.
func (b *Breakdown) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	err := out.Write([]string{"label", "from", "to", "kind", "value", "pv", "share", "uv", "uv_error", "complete", "known"})
	rows := b.Rows
	if len(rows) == 0 {
		rows = []Row{b.Total}
	}
	for i := range rows {
		r := &rows[i]
		if r.Expired {
			continue
		}
		line := func(kind string, v Value) {
			uv, promised := "", ""
			if v.UV != nil {
				uv, promised = strconv.FormatInt(v.UV.Value, 10), strconv.FormatFloat(v.UV.Error, 'g', -1, 64)
			}
			e := out.Write([]string{
				r.Label, r.From.Format(time.RFC3339), r.To.Format(time.RFC3339), kind, counters.Cell(v.Value), strconv.FormatInt(v.PV, 10),
				strconv.FormatFloat(v.Share, 'g', -1, 64), uv, promised, strconv.FormatBool(r.Complete), strconv.FormatBool(r.Known),
			})
			if err == nil {
				err = e
			}
		}
		for _, v := range r.Values {
			line("value", v)
		}
		if r.Rest > 0 {
			line("rest", Value{PV: r.Rest, Share: share(r.Rest, r.PV)})
		}
		if r.Other != nil {
			line("other", *r.Other)
		}
		if r.None != nil {
			line("none", *r.None)
		}
	}
	out.Flush()
	if err == nil {
		err = out.Error()
	}
	return err
}
