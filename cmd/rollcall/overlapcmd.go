package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/counters/users"
)

const conditionHelp = "A condition is EVENT@FROM..TO, EVENT@FROM.. (until the end of today), EVENT@PERIOD (as 7d or yesterday) or cohort:NAME; EVENT is * for any. With first:\n" +
	"before it, only those who had the event for the first time; with ! before all, everybody but those. Users must meet all conditions, or with --any one\n" +
	"of them. --expression takes a file of JSON instead (- for the standard input), which can nest and, or and not."

// expressionFlags defines how a command takes an expression, and returns a function that reads it.
func expressionFlags(cmd *cobra.Command) func(args []string) (*users.Expression, error) {
	either := cmd.Flags().Bool("any", false, "one of the conditions is enough")
	file := cmd.Flags().String("expression", "", "file of an expression as JSON, - for the standard input")
	return func(args []string) (*users.Expression, error) {
		if *file != "" {
			if len(args) > 0 || *either {
				return nil, errors.New("give conditions or --expression, not both")
			}
			return readExpression(cmd, *file)
		}
		if len(args) == 0 {
			return nil, errors.New("give a condition, as '*@2015-01-01..2016-01-01', or --expression")
		}
		list := make([]users.Expression, len(args))
		for i, arg := range args {
			var err error
			if list[i], err = parseCondition(arg); err != nil {
				return nil, err
			}
		}
		switch {
		case len(list) == 1:
			return &list[0], nil
		case *either:
			return &users.Expression{Or: list}, nil
		}
		return &users.Expression{And: list}, nil
	}
}

func readExpression(cmd *cobra.Command, file string) (*users.Expression, error) {
	in := cmd.InOrStdin()
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, 64<<10))
	if err != nil {
		return nil, err
	}
	e, err := users.ReadExpression(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return e, nil
}

// parseCondition reads !first:buy@2015-01-01..2016-01-01.
func parseCondition(arg string) (users.Expression, error) {
	text, not := strings.CutPrefix(arg, "!")
	var e users.Expression
	if name, ok := strings.CutPrefix(text, "cohort:"); ok {
		e.Cohort = name
	} else {
		text, e.First = strings.CutPrefix(text, "first:")
		at := strings.LastIndexByte(text, '@')
		if at < 1 || at == len(text)-1 {
			return e, fmt.Errorf("%q is no condition: want EVENT@FROM..TO, EVENT@PERIOD or cohort:NAME", arg)
		}
		e.Event = text[:at]
		if from, to, ok := strings.Cut(text[at+1:], ".."); ok {
			e.From, e.To = from, to
		} else {
			e.Period = text[at+1:]
		}
	}
	if not {
		return users.Expression{Not: &e}, nil
	}
	return e, nil
}

func overlapCommand() *cobra.Command {
	var out outputFlags
	var list bool
	var user string
	cmd := &cobra.Command{
		Use:   "overlap CONDITION…",
		Short: "Count the users who meet conditions, exactly",
		Long:  "Overlap counts the users who meet conditions, lists them (--list, takes an admin key) or tells of one whether he does (--user).\n\n" + conditionHelp,
		Example: "  rollcall overlap '*@2016-01-01..2017-01-01' '!*@2015-01-01..2016-01-01'\n" +
			"  rollcall overlap --any '*@yesterday' 'first:*@7d'\n  rollcall overlap --user u42 '*@yesterday'",
	}
	expression := expressionFlags(cmd)
	clientFlags(cmd)
	out.flags(cmd)
	cmd.Flags().BoolVar(&list, "list", false, "list the users")
	cmd.Flags().StringVar(&user, "user", "", "tell of this user")
	cmd.MarkFlagsMutuallyExclusive("list", "user")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		e, err := expression(args)
		if err != nil {
			return err
		}
		c, err := newClient(cmd)
		if err != nil {
			return err
		}
		switch {
		case list:
			return listMembers(cmd, c, e, &out)
		case user != "":
			var m users.Membership
			if err := c.ask(cmd.Context(), "POST", "/v1/users/member", map[string]any{"expression": e, "user": user}, &m); err != nil {
				return err
			}
			rows := [][]string{{"USER", "KNOWN", "MEMBER"}, {out.text(m.User), strconv.FormatBool(m.Known), strconv.FormatBool(m.Member)}}
			return out.print(cmd.OutOrStdout(), m, rows)
		}
		var o struct {
			Project string     `json:"project"`
			Zone    string     `json:"zone"`
			AsOf    *time.Time `json:"as_of"`
			Users   unique     `json:"users"`
			Of      uint64     `json:"of"`
			Leaves  []struct {
				Event string    `json:"event"`
				First bool      `json:"first"`
				From  time.Time `json:"from"`
				To    time.Time `json:"to"`
				Users uint64    `json:"users"`

				Not    bool   `json:"not,omitempty"`
				Cohort string `json:"cohort,omitempty"`
			} `json:"leaves"`
			Complete bool               `json:"complete"`
			Restated *counters.Restated `json:"restated,omitempty"`
		}
		if err := c.ask(cmd.Context(), "POST", "/v1/users/count", map[string]any{"expression": e}, &o); err != nil {
			return err
		}
		rows := [][]string{{"CONDITION", "FROM", "TO", "USERS"}}
		for _, l := range o.Leaves {
			name := out.text(l.Event)
			if l.First {
				name = "first " + name
			}
			if l.Not {
				name = "not " + name
			}
			if l.Cohort != "" {
				name = "cohort " + l.Cohort + ": " + name
			}
			rows = append(rows, []string{name, l.From.Format(time.DateOnly), l.To.Format(time.DateOnly), strconv.FormatUint(l.Users, 10)})
		}
		rows = append(rows, []string{whole(e), "", "", o.Users.String()})
		if err := out.print(cmd.OutOrStdout(), o, rows); err != nil || out.asJSON || out.asCSV {
			return err
		}
		var b strings.Builder
		fmt.Fprintf(&b, "\nof %d users that the project has had; zone %s\n", o.Of, o.Zone)
		if !o.Complete {
			b.WriteString("not everything up to the end of the latest range is counted yet\n")
		}
		if o.Restated != nil {
			b.WriteString("changed by events that came when their day was over; --json says when and by how much\n")
		}
		_, err = io.WriteString(cmd.OutOrStdout(), b.String())
		return err
	}
	return cmd
}

// whole names what the last row of a table is.
func whole(e *users.Expression) string {
	switch {
	case len(e.And) > 1:
		return "all of them"
	case len(e.Or) > 1:
		return "any of them"
	}
	return "users"
}

// listMembers prints page after page.
func listMembers(cmd *cobra.Command, c *client, e *users.Expression, out *outputFlags) error {
	cursor, first := "", true
	for first || cursor != "" {
		var page users.Members
		body := map[string]any{"expression": e, "limit": users.MaxMembers, "cursor": cursor}
		if err := c.ask(cmd.Context(), "POST", "/v1/users/list", body, &page); err != nil {
			return err
		}
		cursor = page.Next
		if out.asJSON { // a line for each page
			if err := json.NewEncoder(cmd.OutOrStdout()).Encode(page); err != nil {
				return err
			}
			continue
		}
		var rows [][]string
		if first {
			rows = append(rows, []string{"USER"})
		}
		for _, u := range page.Users {
			rows = append(rows, []string{out.text(u)})
		}
		first = false
		if err := out.print(cmd.OutOrStdout(), nil, rows); err != nil {
			return err
		}
	}
	return nil
}

func cohortsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cohorts",
		Short: "List, show, save and delete named cohorts",
		Long:  "A cohort is an expression under a name, which other expressions can use: rollcall overlap cohort:NAME. Its periods move on with the days.",
	}
	cmd.AddCommand(cohortsList(), cohortsShow(), cohortsSave(), cohortsDelete())
	return cmd
}

func cohortsList() *cobra.Command {
	var out outputFlags
	cmd := &cobra.Command{Use: "list", Short: "List the names", Args: cobra.NoArgs}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := newClient(cmd)
		if err != nil {
			return err
		}
		var a struct {
			Cohorts []string `json:"cohorts"`
		}
		if err := c.ask(cmd.Context(), "GET", "/v1/cohorts", nil, &a); err != nil {
			return err
		}
		rows := [][]string{{"COHORT"}}
		for _, name := range a.Cohorts {
			rows = append(rows, []string{name})
		}
		return out.print(cmd.OutOrStdout(), a.Cohorts, rows)
	}
	clientFlags(cmd)
	out.flags(cmd)
	return cmd
}

func cohortPath(name string) string { return "/v1/cohorts/" + url.PathEscape(name) }

func printCohort(cmd *cobra.Command, out *outputFlags, s *users.Saved) error {
	e, err := json.Marshal(s.Expression)
	if err != nil {
		return err
	}
	return out.print(cmd.OutOrStdout(), s, [][]string{{"COHORT", "CHANGED", "EXPRESSION"}, {s.Name, instant(s.Changed), string(e)}})
}

func cohortsShow() *cobra.Command {
	var out outputFlags
	cmd := &cobra.Command{Use: "show NAME", Short: "Show one", Args: cobra.ExactArgs(1)}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := newClient(cmd)
		if err != nil {
			return err
		}
		var s users.Saved
		if err := c.ask(cmd.Context(), "GET", cohortPath(args[0]), nil, &s); err != nil {
			return err
		}
		return printCohort(cmd, &out, &s)
	}
	clientFlags(cmd)
	out.flags(cmd)
	return cmd
}

func cohortsSave() *cobra.Command {
	var out outputFlags
	cmd := &cobra.Command{
		Use:     "save NAME CONDITION…",
		Short:   "Save one, instead of what has the name",
		Long:    conditionHelp,
		Example: "  rollcall cohorts save only-2016 '*@2016-01-01..2017-01-01' '!*@2015-01-01..2016-01-01'",
		Args:    cobra.MinimumNArgs(1),
	}
	expression := expressionFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		e, err := expression(args[1:])
		if err != nil {
			return err
		}
		c, err := newClient(cmd)
		if err != nil {
			return err
		}
		var s users.Saved
		if err := c.ask(cmd.Context(), "PUT", cohortPath(args[0]), map[string]any{"expression": e}, &s); err != nil {
			return err
		}
		return printCohort(cmd, &out, &s)
	}
	clientFlags(cmd)
	out.flags(cmd)
	return cmd
}

func cohortsDelete() *cobra.Command {
	cmd := &cobra.Command{Use: "delete NAME", Short: "Delete one", Args: cobra.ExactArgs(1)}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := newClient(cmd)
		if err != nil {
			return err
		}
		var a struct {
			Deleted bool `json:"deleted"`
		}
		if err := c.ask(cmd.Context(), "DELETE", cohortPath(args[0]), nil, &a); err != nil {
			return err
		}
		if !a.Deleted {
			return fmt.Errorf("the project has no cohort %q", args[0])
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), args[0], "is deleted")
		return err
	}
	clientFlags(cmd)
	return cmd
}
