package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

func countsCommand() *cobra.Command {
	var event, from, to, named, interval string
	var asJSON, asCSV bool
	cmd := &cobra.Command{
		Use:   "counts",
		Short: "Ask for PV and UV",
		Long:  "Counts asks a running server how often an event came (PV) and from how many users (UV), by hour, day, week or month.",
		Example: "  rollcall counts --event page_view --from 2015-05-17 --to 2015-05-21\n" +
			"  rollcall counts --event '*' --interval month --from 2015-01-01 --to 2016-01-01 --csv",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := newClient(cmd)
			if err != nil {
				return err
			}
			q := url.Values{"event": {event}, "interval": {interval}}
			for name, v := range map[string]string{"from": from, "to": to, "period": named} {
				if v != "" {
					q.Set(name, v)
				}
			}
			path := "/v1/counts"
			if asCSV {
				path += ".csv"
			}
			res, err := c.call(cmd.Context(), "GET", path, q, nil, nil)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusOK {
				return refused(res)
			}
			if asJSON || asCSV {
				_, err = io.Copy(cmd.OutOrStdout(), res.Body)
				return err
			}
			var s series
			if err := json.NewDecoder(res.Body).Decode(&s); err != nil {
				return fmt.Errorf("reading the answer: %w", err)
			}
			_, err = io.WriteString(cmd.OutOrStdout(), s.table(event, interval))
			return err
		},
	}
	f := cmd.Flags()
	clientFlags(cmd)
	f.StringVar(&event, "event", "*", "name of the event, * for any")
	f.StringVar(&from, "from", "", "first date in the project's zone, or RFC 3339 instant")
	f.StringVar(&to, "to", "", "date or instant that the range ends before (default: the end of today)")
	f.StringVar(&named, "period", "", "instead of from and to: today, yesterday, or 1d to 400d, the last of them today (default 7d)")
	f.StringVar(&interval, "interval", "day", "hour, day, week or month")
	f.BoolVar(&asJSON, "json", false, "print the server's JSON")
	f.BoolVar(&asCSV, "csv", false, "print CSV")
	cmd.MarkFlagsMutuallyExclusive("json", "csv")
	return cmd
}

// series is what the table needs of the answer to /v1/counts.
type series struct {
	Zone string `json:"zone"`
	Rows []struct {
		Label    string  `json:"label"`
		PV       int64   `json:"pv"`
		UV       *unique `json:"uv"` // nil when its sketch has expired
		Complete bool    `json:"complete"`
	} `json:"rows"`
	Total struct {
		PV int64   `json:"pv"`
		UV *unique `json:"uv"`
	} `json:"total"`
}

type unique struct {
	Value  int64   `json:"value"`
	Method string  `json:"method"`
	Error  float64 `json:"error"`
}

func (u *unique) String() string {
	if u == nil {
		return "-"
	}
	return strconv.FormatInt(u.Value, 10)
}

// table is for people: numbers to the right, plain digits so that they can be copied.
func (s *series) table(event, interval string) string {
	rows := [][]string{{interval, "PV", "UV"}}
	open, gone := false, s.Total.UV == nil
	for _, r := range s.Rows {
		label := r.Label
		if !r.Complete {
			label, open = label+" *", true
		}
		gone = gone || r.UV == nil
		rows = append(rows, []string{label, strconv.FormatInt(r.PV, 10), r.UV.String()})
	}
	rows = append(rows, []string{"total", strconv.FormatInt(s.Total.PV, 10), s.Total.UV.String()})

	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s\n\n", event, s.Zone)
	writeTable(&b, rows)
	if s.Total.UV != nil && s.Total.UV.Method == "hll" {
		fmt.Fprintf(&b, "\nUV is an estimate, standard error %.2f %%; the total counts each user once.\n", 100*s.Total.UV.Error)
	}
	if open {
		b.WriteString("* not everything up to its end is counted yet\n")
	}
	if gone {
		b.WriteString("- no longer kept: sketches of hours and days have a keep time\n")
	}
	return b.String()
}

// writeTable aligns the first column left, the others right.
func writeTable(b *strings.Builder, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, cell := range r {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, r := range rows {
		for i, cell := range r {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				b.WriteString(cell + pad)
			} else {
				b.WriteString("  " + pad + cell)
			}
		}
		b.WriteByte('\n')
	}
}
