package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rollcall/rollcall/ingest/drops"
)

func dropsCommand() *cobra.Command {
	var from, to, named, interval string
	var asJSON, asCSV bool
	cmd := &cobra.Command{
		Use:   "drops",
		Short: "Ask what became of the events that came",
		Long: "Drops asks a running server how many events it received, by minute, hour or day, and what became of them: accepted, duplicates, bots,\n" +
			"and those rejected, by code. The table leaves out rows without events. Requests that were refused as a whole (no key, unreadable, too\n" +
			"large, too many) are not in it: nothing of them was taken, and their senders were told.",
		Example: "  rollcall drops\n" +
			"  rollcall drops --period 7d --interval day\n" +
			"  rollcall drops --from 2026-11-30T08:00:00Z --to 2026-11-30T09:00:00Z --csv",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := newClient(cmd)
			if err != nil {
				return err
			}
			q := url.Values{}
			for name, v := range map[string]string{"from": from, "to": to, "period": named, "interval": interval} {
				if v != "" {
					q.Set(name, v)
				}
			}
			path := "/v1/drops"
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
			var d drops.Drops
			if err := json.NewDecoder(res.Body).Decode(&d); err != nil {
				return fmt.Errorf("reading the answer: %w", err)
			}
			_, err = io.WriteString(cmd.OutOrStdout(), dropsTable(&d))
			return err
		},
	}
	f := cmd.Flags()
	clientFlags(cmd)
	f.StringVar(&from, "from", "", "first date in the project's zone, or RFC 3339 instant")
	f.StringVar(&to, "to", "", "date or instant that the range ends before (default: the end of today)")
	f.StringVar(&named, "period", "", "instead of from and to: 1m to 1500m, 1h to 1080h, today, yesterday, or 1d to 400d (default 1h)")
	f.StringVar(&interval, "interval", "", "minute, hour or day (default: minute up to 6 hours, hour up to 4 days)")
	f.BoolVar(&asJSON, "json", false, "print the server's JSON")
	f.BoolVar(&asCSV, "csv", false, "print CSV")
	cmd.MarkFlagsMutuallyExclusive("json", "csv")
	return cmd
}

// dropsTable is for people.
func dropsTable(d *drops.Drops) string {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	cells := func(label string, s *drops.Sums) []string {
		return []string{label, number(s.Received), number(s.Accepted), number(s.Duplicates), number(s.Bots), number(s.RejectedTotal())}
	}
	rows := [][]string{{d.Query.Interval, "received", "accepted", "duplicates", "bots", "rejected"}}
	open, gone := false, 0
	for i := range d.Rows {
		r := &d.Rows[i]
		if r.Expired {
			gone++
		}
		if r.Received == 0 {
			continue
		}
		label := r.Label
		if !r.Complete {
			label, open = label+" *", true
		}
		rows = append(rows, cells(label, &r.Sums))
	}
	rows = append(rows, cells("total", &d.Total.Sums))

	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s to %s, %s\n\n", d.Query.Project, d.Query.From.Format(time.RFC3339), d.Query.To.Format(time.RFC3339), d.Zone)
	writeTable(&b, rows)
	if len(d.Total.Rejected) > 0 {
		b.WriteByte('\n')
		byCode := [][]string{{"rejected as", "events"}}
		codes := slices.SortedFunc(maps.Keys(d.Total.Rejected), func(x, y string) int {
			return cmp.Or(cmp.Compare(d.Total.Rejected[y], d.Total.Rejected[x]), cmp.Compare(x, y))
		})
		for _, code := range codes {
			byCode = append(byCode, []string{code, number(d.Total.Rejected[code])})
		}
		writeTable(&b, byCode)
	}
	if open {
		b.WriteString("\n* not everything up to its end is accounted for yet\n")
	}
	if gone > 0 {
		fmt.Fprintf(&b, "\n%d rows are no longer kept\n", gone)
	}
	return b.String()
}
