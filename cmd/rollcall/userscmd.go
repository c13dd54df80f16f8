package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// marks collects the footnotes of a table.
type marks struct {
	open, restated, unknown bool
	since                   *time.Time // when what is asked for began to be counted, if that was later than the project
}

func (m *marks) why() string {
	if m.since == nil {
		return "what was kept has passed its keep time"
	}
	return "it is counted only since " + instant(*m.since)
}

// label is a row's first cell.
func (m *marks) label(r *rowHead) string {
	label := r.Label
	if !r.Complete {
		label, m.open = label+" *", true
	}
	if r.Restated != nil {
		label, m.restated = label+" †", true
	}
	return label
}

func (m *marks) write(b *strings.Builder) {
	if !m.open && !m.restated && !m.unknown {
		return
	}
	b.WriteByte('\n')
	for _, n := range []struct {
		on   bool
		text string
	}{
		{m.open, "* not everything up to its end is counted yet"},
		{m.restated, "† changed by events that came when the day was over; --json says when and by how much"},
		{m.unknown, "- not known: " + m.why()},
	} {
		if n.on {
			b.WriteString(n.text + "\n")
		}
	}
}

// rowHead is what every row has.
type rowHead struct {
	Label    string `json:"label"`
	Complete bool   `json:"complete"`
	Restated *struct {
		At      time.Time `json:"at"`
		Changes int64     `json:"changes"`
	} `json:"restated"`
}

type userRow struct {
	rowHead
	Exact  *unique  `json:"exact"`
	HLL    *unique  `json:"hll"`
	Differ *float64 `json:"real_error"`
}

func usersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "users",
		Short: "Ask for exact numbers of users",
		Long: "Users asks how many different users had an event, by day, week or month: exactly, by sketch (hll), or both side by side with the sketch's\n" +
			"real error. Exact sets are kept of the events that the project names in exact, by default of all events together (*).",
		Example: "  rollcall users --from 2015-01-01 --to 2016-01-01 --interval month\n  rollcall users --period 7d --method both",
	}
	q := newQuestion(cmd, "/v1/users")
	event := q.text("event", "*", "name of the event, * for any")
	q.span("7d")
	interval := q.text("interval", "day", "day, week or month; hour with --method hll")
	method := q.text("method", "exact", "exact, hll or both")
	q.table = func(answer []byte) (string, error) {
		var a struct {
			Zone  string     `json:"zone"`
			Since *time.Time `json:"exact_since"`
			Rows  []userRow  `json:"rows"`
			Total userRow    `json:"total"`
		}
		if err := json.Unmarshal(answer, &a); err != nil {
			return "", err
		}
		m := marks{since: a.Since}
		rows := [][]string{{*interval, "exact", "hll", "real error"}}
		used := []bool{true, *method != "hll", *method != "exact", *method == "both"}
		a.Total.Label = "total"
		a.Total.Complete, a.Total.Restated = true, nil
		for _, r := range append(a.Rows, a.Total) {
			rows = append(rows, []string{m.label(&r.rowHead), r.Exact.String(), r.HLL.String(), percent(r.Differ)})
		}
		for _, r := range rows {
			m.unknown = m.unknown || used[1] && r[1] == "-" || used[2] && r[2] == "-"
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s, %s\n\n", *event, a.Zone)
		writeTable(&b, columns(rows, used))
		b.WriteString("\nThe total counts each user once.")
		if *method == "both" {
			b.WriteString(" The real error is that of hll, in rows that are complete and have users.")
		}
		b.WriteByte('\n')
		m.write(&b)
		return b.String(), nil
	}
	return cmd
}

// columns keeps those that are used.
func columns(rows [][]string, used []bool) [][]string {
	for i, r := range rows {
		kept := r[:0]
		for k, cell := range r {
			if used[k] {
				kept = append(kept, cell)
			}
		}
		rows[i] = kept
	}
	return rows
}

func percent(x *float64) string {
	if x == nil {
		return "-"
	}
	return strconv.FormatFloat(100**x, 'f', 2, 64) + " %"
}

func activeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "active",
		Short: "Ask who is active: DAU, WAU, MAU, new, returning, resurrected, dormant, stickiness",
		Long: "Active asks, for each day, week or month of the calendar: how many users were active, how many of them for the first time (new), after being\n" +
			"active in the row before (returning) or after a gap (resurrected), how many of the row before stayed away (dormant), how many were active in\n" +
			"the 7 and the 30 days that end with the row, and the stickiness (mean DAU ÷ MAU).",
		Example: "  rollcall active --from 2015-01-01 --to 2016-01-01 --interval month\n  rollcall active --period 30d",
	}
	q := newQuestion(cmd, "/v1/active")
	event := q.text("event", "*", "name of the event, * for any")
	q.span("30d")
	interval := q.text("interval", "day", "day, week or month")
	q.table = func(answer []byte) (string, error) {
		var a struct {
			Zone  string     `json:"zone"`
			Since *time.Time `json:"exact_since"`
			Rows  []struct {
				rowHead
				Active      *uint64  `json:"active"`
				New         *uint64  `json:"new"`
				Returning   *uint64  `json:"returning"`
				Resurrected *uint64  `json:"resurrected"`
				Dormant     *uint64  `json:"dormant"`
				Rolling7    *uint64  `json:"rolling_7"`
				Rolling30   *uint64  `json:"rolling_30"`
				Stickiness  *float64 `json:"stickiness"`
			} `json:"rows"`
		}
		if err := json.Unmarshal(answer, &a); err != nil {
			return "", err
		}
		m := marks{since: a.Since}
		rows := [][]string{{*interval, "active", "new", "returning", "resurrected", "dormant", "7 days", "30 days", "stickiness"}}
		for _, r := range a.Rows {
			cells := []string{m.label(&r.rowHead)}
			for _, n := range []*uint64{r.Active, r.New, r.Returning, r.Resurrected, r.Dormant, r.Rolling7, r.Rolling30} {
				if n == nil {
					m.unknown = true
					cells = append(cells, "-")
					continue
				}
				cells = append(cells, strconv.FormatUint(*n, 10))
			}
			rows = append(rows, append(cells, percent(r.Stickiness)))
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s, %s\n\n", *event, a.Zone)
		writeTable(&b, rows)
		if a.Since != nil {
			fmt.Fprintf(&b, "\nnew: for the first time since %s, when the event began to be counted exactly\n", instant(*a.Since))
		}
		m.write(&b)
		return b.String(), nil
	}
	return cmd
}

func retentionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retention",
		Short: "Ask how many users of a cohort come back",
		Long: "Retention asks for a matrix: a row for each cohort, a column for each period after it. A cohort is who had an event for the first time in the\n" +
			"row (first) or who had it at all (active). Classic counts who is back in just that period, rolling who is back in that one or later.",
		Example: "  rollcall retention --from 2015-01-01 --to 2016-01-01 --interval month --periods 6\n" +
			"  rollcall retention --cohort active --interval day --period 14d --kind rolling",
	}
	q := newQuestion(cmd, "/v1/retention")
	q.span("84d")
	interval := q.text("interval", "week", "day, week or month")
	q.text("cohort", "first", "first: who had the event for the first time; active: who had it")
	q.text("cohort_event", "*", "the event that makes a user one of the cohort")
	q.text("event", "*", "the event by which a user is back")
	q.text("periods", "", "columns, 1 to 100 (default 12)")
	q.text("kind", "classic", "classic or rolling")
	q.table = func(answer []byte) (string, error) {
		var a struct {
			Query struct {
				Cohort  string `json:"cohort"`
				Start   string `json:"cohort_event"`
				Event   string `json:"event"`
				Periods int    `json:"periods"`
				Kind    string `json:"kind"`
			} `json:"query"`
			Zone  string     `json:"zone"`
			Since *time.Time `json:"exact_since"`
			Rows  []struct {
				rowHead
				Known bool   `json:"known"`
				Size  uint64 `json:"size"`
				Cells []struct {
					Share    *float64 `json:"share"`
					Complete bool     `json:"complete"`
				} `json:"cells"`
			} `json:"rows"`
			Average []struct {
				Share *float64 `json:"share"`
			} `json:"average"`
		}
		if err := json.Unmarshal(answer, &a); err != nil {
			return "", err
		}
		m := marks{since: a.Since}
		head, columns := []string{*interval, "users"}, 0
		for _, r := range a.Rows {
			columns = max(columns, len(r.Cells))
		}
		for n := range columns {
			head = append(head, strconv.Itoa(n))
		}
		rows := [][]string{head}
		part := func(x *float64, complete bool) string {
			if x == nil {
				return "-"
			}
			s := strconv.FormatFloat(100**x, 'f', 1, 64)
			if !complete {
				m.open = true
				s += "*"
			}
			return s
		}
		for _, r := range a.Rows {
			cells := []string{m.label(&r.rowHead), strconv.FormatUint(r.Size, 10)}
			if !r.Known {
				m.unknown = true
				cells[1] = "-"
			}
			for _, c := range r.Cells {
				cells = append(cells, part(c.Share, c.Complete))
			}
			for len(cells) < len(head) {
				cells = append(cells, "")
			}
			rows = append(rows, cells)
		}
		mean := []string{"average", ""}
		for _, x := range a.Average[:columns] {
			mean = append(mean, part(x.Share, true))
		}
		rows = append(rows, mean)
		var b strings.Builder
		fmt.Fprintf(&b, "%s %s, back by %s, %s, %%, %s\n\n", a.Query.Cohort, a.Query.Start, a.Query.Event, a.Query.Kind, a.Zone)
		writeTable(&b, rows)
		b.WriteString("\nThe averages leave out periods that are not over; each cohort counts by its users.\n")
		m.write(&b)
		return b.String(), nil
	}
	return cmd
}
