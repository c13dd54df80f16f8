package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rollcall/rollcall/counters"
)

func countsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "counts",
		Short: "Ask for PV and UV",
		Long:  "Counts asks a running server how often an event came (PV) and from how many users (UV), by hour, day, week or month.",
		Example: "  rollcall counts --event page_view --from 2015-05-17 --to 2015-05-21\n" +
			"  rollcall counts --event '*' --interval month --from 2015-01-01 --to 2016-01-01 --csv",
	}
	q := newQuestion(cmd, "/v1/counts")
	event := q.text("event", "*", "name of the event, * for any")
	q.span("7d")
	interval := q.text("interval", "day", "hour, day, week or month")
	q.table = func(answer []byte) (string, error) {
		var s series
		err := json.Unmarshal(answer, &s)
		return s.table(*event, *interval), err
	}
	return cmd
}

func namesCommand() *cobra.Command {
	var out outputFlags
	cmd := &cobra.Command{
		Use:   "names",
		Short: "List the names of events that are counted",
		Long:  "Names lists the events that are counted each by itself: the first 2,000 names that came. Others count in *, and together as the event **.",
		Args:  cobra.NoArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := newClient(cmd)
		if err != nil {
			return err
		}
		var a counters.Names
		if err := c.ask(cmd.Context(), "GET", "/v1/names", nil, &a); err != nil {
			return err
		}
		rows := [][]string{{"EVENT"}}
		for _, name := range a.Names {
			rows = append(rows, []string{out.text(name)})
		}
		return out.print(cmd.OutOrStdout(), a.Names, rows)
	}
	clientFlags(cmd)
	out.flags(cmd)
	return cmd
}

// series is what the table needs of the answer to /v1/counts.
type series struct {
	Zone string `json:"zone"`
	Rows []struct {
		rowHead
		PV int64   `json:"pv"`
		UV *unique `json:"uv"` // nil when its sketch has expired
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
	gone := s.Total.UV == nil
	var m marks
	for _, r := range s.Rows {
		gone = gone || r.UV == nil
		rows = append(rows, []string{m.label(&r.rowHead), strconv.FormatInt(r.PV, 10), r.UV.String()})
	}
	rows = append(rows, []string{"total", strconv.FormatInt(s.Total.PV, 10), s.Total.UV.String()})

	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s\n\n", event, s.Zone)
	writeTable(&b, rows)
	if s.Total.UV != nil && s.Total.UV.Method == "hll" {
		fmt.Fprintf(&b, "\nUV is an estimate, standard error %.2f %%; the total counts each user once.\n", 100*s.Total.UV.Error)
	}
	m.write(&b)
	if gone {
		b.WriteString("\n- no longer kept: sketches of hours and days have a keep time\n")
	}
	return b.String()
}
