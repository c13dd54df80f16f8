package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rollcall/rollcall/counters/breakdown"
)

func breakdownCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "breakdown",
		Short: "Ask for the most frequent values of a prop",
		Long: "Breakdown asks how often an event came (PV) and from how many users (UV), by the values of a prop that the project names in its breakdowns. Values\n" +
			"beyond what a day may have are (other), events without the prop (none); the sum is the event's PV. UV is of whole days.",
		Example: "  rollcall breakdown --event page_view --prop page --period today --limit 20\n" +
			"  rollcall projects update shop --breakdown page_view=page,channel",
	}
	q := newQuestion(cmd, "/v1/breakdown")
	q.text("event", "*", "name of the event, * for any")
	q.text("prop", "", "the prop")
	q.span("7d")
	q.text("interval", "", "hour, day, week or month: the most frequent values of each (default: of the whole range)")
	q.text("limit", "10", "values, at most 1000")
	if err := cmd.MarkFlagRequired("prop"); err != nil {
		panic(err) // there is no such flag
	}
	q.table = func(answer []byte) (string, error) {
		var a breakdown.Breakdown
		if err := json.Unmarshal(answer, &a); err != nil {
			return "", err
		}
		rows := append(a.Rows, a.Total)
		rows[len(rows)-1].Label = "total"
		table := [][]string{{"value", "PV", "share", "UV"}}
		var m marks
		partly, estimates := false, false
		for i := range rows {
			r := &rows[i]
			head := rowHead{Label: r.Label, Complete: r.Complete}
			if !r.Known {
				head.Label, partly = head.Label+" ‡", true
			}
			pv := strconv.FormatInt(r.PV, 10)
			if r.Expired {
				pv, m.unknown = "-", true
			}
			table = append(table, []string{m.label(&head), pv, "", ""})
			line := func(name string, v *breakdown.Value) {
				uv := "-"
				if v.UV != nil {
					estimates = true
					uv = strconv.FormatInt(v.UV.Value, 10)
				}
				table = append(table, []string{"  " + printable(name), strconv.FormatInt(v.PV, 10), percent(&v.Share), uv})
			}
			for k := range r.Values {
				line(r.Values[k].Value, &r.Values[k])
			}
			if r.Rest > 0 {
				line("less frequent ones", &breakdown.Value{PV: r.Rest, Share: float64(r.Rest) / float64(r.PV)})
			}
			if r.Other != nil {
				line("(other)", r.Other)
			}
			if r.None != nil {
				line("(none)", r.None)
			}
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s by %s, %s\n\n", a.Query.Event, a.Query.Prop, a.Zone)
		writeTable(&b, table)
		if estimates {
			b.WriteString("\nUV is an estimate, standard error 0.81 %.\n")
		}
		if partly && a.Since != nil {
			fmt.Fprintf(&b, "\n‡ the event is broken down by the prop only since %s: these are numbers of what came since\n", instant(*a.Since))
		}
		m.write(&b)
		return b.String(), nil
	}
	return cmd
}

// printable keeps a client's text from doing anything to a terminal.
func printable(s string) string {
	q := strconv.QuoteToGraphic(s)
	if q = q[1 : len(q)-1]; q == s {
		return s
	}
	return strconv.QuoteToGraphic(s)
}
