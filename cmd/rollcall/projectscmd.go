package main

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/project"
)

func projectsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "projects",
		Short: "List, make, change and close projects",
		Long: "Projects made here are kept beside the journal and known to every node at once. Those of the configuration file are listed too, and changed\n" +
			"there (SIGHUP reads it again). Making a project takes an admin key that opens every project.",
	}
	cmd.AddCommand(projectsList(), projectsCreate(), projectsUpdate(), projectsRevoke())
	return cmd
}

// projectRow is a project as the API shows it.
type projectRow struct {
	project.Spec
	Source  string    `json:"source"`
	Created time.Time `json:"created,omitzero"`
}

var projectHeader = []string{"PROJECT", "ZONE", "LATE", "ANONYMOUS", "BOTS", "KEY RATE", "ADDRESS RATE", "SYNC RATE", "RULES", "EXACT", "BREAKDOWNS", "STATE", "SOURCE"}

func (p *projectRow) cells() []string {
	state := "open"
	if p.Closed {
		state = "closed"
	}
	return []string{
		p.ID, p.Zone, p.LateWindow.String(), p.Anonymous, p.Bots, p.KeyRate.String(), p.AddrRate.String(), p.SyncRate.String(),
		strconv.Itoa(len(p.Frequency)), list(p.Exact), list(p.brokenDown()), state, p.Source,
	}
}

// list is names as a cell.
func list(names []string) string {
	if len(names) == 0 {
		return "-"
	}
	shown := make([]string, len(names))
	for i, name := range names {
		shown[i] = printable(name)
	}
	return strings.Join(shown, " ")
}

func (p *projectRow) brokenDown() (texts []string) {
	for _, b := range p.Breakdowns {
		texts = append(texts, b.Event+"="+strings.Join(b.Props, ","))
	}
	return texts
}

func projectsList() *cobra.Command {
	var out outputFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the projects that the key opens",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := newClient(cmd)
			if err != nil {
				return err
			}
			var a struct {
				Projects []projectRow `json:"projects"`
			}
			if err := c.ask(cmd.Context(), "GET", "/v1/projects", nil, &a); err != nil {
				return err
			}
			rows := [][]string{projectHeader}
			for i := range a.Projects {
				rows = append(rows, a.Projects[i].cells())
			}
			return out.print(cmd.OutOrStdout(), a.Projects, rows)
		},
	}
	clientFlags(cmd)
	out.flags(cmd)
	return cmd
}

// projectFlags defines a flag for each setting and returns a function that gathers those that were used.
func projectFlags(cmd *cobra.Command) func() (map[string]any, error) {
	f := cmd.Flags()
	late := f.String("late-window", "", "events older than this are refused, as 7d")
	f.String("anonymous", "", "who an event without a user is counted as: none, daily or stable")
	f.String("bots", "", "flag: keep bots apart; count: make no difference")
	origins := f.StringArray("origin", nil, "web origin whose pages may read answers, as https://shop.example (several times)")
	f.String("key-rate", "", "most events by each key, as 1000/s or 50000/m burst 100000; none = the server's limits.key_rate")
	f.String("address-rate", "", "most events from each client address")
	f.String("sync-rate", "", "most calls by each key that wait for their result, over all nodes")
	exact := f.StringArray("exact", nil, "event whose users are counted exactly too, * for all events together (several times; replaces all; '' = none)")
	downs := f.StringArray("breakdown", nil, "EVENT=PROP,PROP, as page_view=page,channel: count the event by these props too (several times; replaces all; '' = none)")
	rules := f.StringArray("frequency", nil, "rule EVENT=LIMIT/SPAN, as share=10/1h: each user may send it so often (several times; replaces all rules)")
	return func() (map[string]any, error) {
		m := map[string]any{}
		for _, name := range []string{"anonymous", "bots", "key-rate", "address-rate", "sync-rate"} {
			if f.Changed(name) {
				v, err := f.GetString(name)
				if err != nil {
					return nil, err
				}
				m[strings.ReplaceAll(name, "-", "_")] = v
			}
		}
		if f.Changed("late-window") {
			m["late_window"] = *late
		}
		if f.Changed("origin") {
			m["origins"] = *origins
		}
		if f.Changed("exact") {
			m["exact"] = slices.DeleteFunc(append([]string{}, *exact...), func(s string) bool { return s == "" })
		}
		if f.Changed("breakdown") {
			list, err := parseBreakdowns(*downs)
			if err != nil {
				return nil, err
			}
			m["breakdowns"] = list
		}
		if f.Changed("frequency") {
			list := []project.Frequency{}
			for _, text := range *rules {
				if text == "" {
					continue
				}
				rule, err := parseRule(text)
				if err != nil {
					return nil, err
				}
				list = append(list, rule)
			}
			m["frequency"] = list
		}
		return m, nil
	}
}

// parseBreakdowns reads page_view=page,channel. The event may have any character; the last = counts.
func parseBreakdowns(texts []string) ([]project.Breakdown, error) {
	list := []project.Breakdown{}
	for _, text := range texts {
		if text == "" {
			continue
		}
		at := strings.LastIndexByte(text, '=')
		if at < 1 || at == len(text)-1 {
			return nil, fmt.Errorf("--breakdown %q: want EVENT=PROP,PROP, as page_view=page,channel", text)
		}
		list = append(list, project.Breakdown{Event: text[:at], Props: strings.Split(text[at+1:], ",")})
	}
	return list, nil
}

// parseRule reads share=10/1h. The event may have any character; the last = counts.
func parseRule(text string) (r project.Frequency, err error) {
	at := strings.LastIndexByte(text, '=')
	limit, span, ok := strings.Cut(text[at+1:], "/")
	if at < 1 || !ok {
		return r, fmt.Errorf("--frequency %q: want EVENT=LIMIT/SPAN, as share=10/1h", text)
	}
	r.Event = text[:at]
	if r.Limit, err = strconv.Atoi(limit); err != nil {
		return r, fmt.Errorf("--frequency %q: the limit is no whole number", text)
	}
	switch span {
	case "s", "m", "h", "d":
		span = "1" + span
	}
	if err := r.Per.UnmarshalText([]byte(span)); err != nil || r.Per == clock.Duration(0) {
		return r, fmt.Errorf("--frequency %q: want a span such as 60s, 1h or 1d", text)
	}
	return r, nil
}

func projectsCreate() *cobra.Command {
	var out outputFlags
	var zone string
	cmd := &cobra.Command{
		Use:     "create ID",
		Short:   "Make a project",
		Long:    "Create makes a project. Its zone, whose calendar its days follow, can never change.",
		Example: "  rollcall projects create shop --zone Asia/Shanghai --anonymous daily --frequency share=10/1h",
		Args:    cobra.ExactArgs(1),
	}
	settings := projectFlags(cmd)
	cmd.Flags().StringVar(&zone, "zone", "", "IANA zone; by default the server's")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := newClient(cmd)
		if err != nil {
			return err
		}
		body, err := settings()
		if err != nil {
			return err
		}
		body["id"] = args[0]
		if zone != "" {
			body["zone"] = zone
		}
		return c.changeProject(cmd, "POST", "/v1/projects", body, &out)
	}
	clientFlags(cmd)
	out.flags(cmd)
	return cmd
}

func (c *client) changeProject(cmd *cobra.Command, method, path string, body any, out *outputFlags) error {
	var p projectRow
	if err := c.ask(cmd.Context(), method, path, body, &p); err != nil {
		return err
	}
	return out.print(cmd.OutOrStdout(), p, [][]string{projectHeader, p.cells()})
}

func projectsUpdate() *cobra.Command {
	var out outputFlags
	var closed bool
	cmd := &cobra.Command{
		Use:   "update ID",
		Short: "Change a project's settings",
		Example: "  rollcall projects update shop --key-rate '5000/s burst 20000'\n  rollcall projects update shop --exact '*' --exact buy\n" +
			"  rollcall projects update shop --breakdown page_view=page,channel\n  rollcall projects update shop --closed=false",
		Args: cobra.ExactArgs(1),
	}
	settings := projectFlags(cmd)
	cmd.Flags().BoolVar(&closed, "closed", false, "its keys open nothing; --closed=false opens it again")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := newClient(cmd)
		if err != nil {
			return err
		}
		body, err := settings()
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("closed") {
			body["closed"] = closed
		}
		if len(body) == 0 {
			return fmt.Errorf("nothing to change: name a setting, see rollcall projects update --help")
		}
		return c.changeProject(cmd, "PATCH", "/v1/projects/"+url.PathEscape(args[0]), body, &out)
	}
	clientFlags(cmd)
	out.flags(cmd)
	return cmd
}

func projectsRevoke() *cobra.Command {
	var out outputFlags
	cmd := &cobra.Command{
		Use:   "revoke ID",
		Short: "Close a project: its keys open nothing any more",
		Long:  "Revoke closes a project at once. What it has counted stays. `rollcall projects update ID --closed=false` opens it again.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := newClient(cmd)
			if err != nil {
				return err
			}
			return c.changeProject(cmd, "PATCH", "/v1/projects/"+url.PathEscape(args[0]), map[string]any{"closed": true}, &out)
		},
	}
	clientFlags(cmd)
	out.flags(cmd)
	return cmd
}
