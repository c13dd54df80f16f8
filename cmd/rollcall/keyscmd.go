package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/project"
)

func keysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "List, make, revoke and rotate keys",
		Long: "A key opens one project (--project) for one scope: write (rcw_…) sends events and is public, read (rcr_…) asks for numbers, admin (rca_…) does\n" +
			"both and manages the project's keys. An admin key without a project opens all of them. Only a key's hash is kept: it is shown once.",
	}
	cmd.AddCommand(keysList(), keysCreate(), keysRevoke(), keysRotate(), keysGenerate())
	return cmd
}

// keyRow is a key as the API shows it.
type keyRow struct {
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	Project  string    `json:"project,omitempty"`
	Scope    string    `json:"scope"`
	Source   string    `json:"source"`
	State    string    `json:"state"`
	Created  time.Time `json:"created,omitzero"`
	LastUsed time.Time `json:"last_used,omitzero"`
	Expires  time.Time `json:"expires,omitzero"`
	Revoked  time.Time `json:"revoked,omitzero"`
	Key      string    `json:"key,omitempty"`
}

var keyHeader = []string{"KEY", "NAME", "PROJECT", "SCOPE", "STATE", "CREATED", "LAST USED", "EXPIRES", "SOURCE"}

func (k *keyRow) cells() []string {
	of := k.Project
	if of == "" {
		of = "(all)"
	}
	return []string{k.ID, k.Name, of, k.Scope, k.State, instant(k.Created), instant(k.LastUsed), instant(k.Expires), k.Source}
}

// keysPath is where the keys of --project are, or those that open every project.
func (c *client) keysPath() string {
	if c.project == "" {
		return "/v1/keys"
	}
	return "/v1/projects/" + url.PathEscape(c.project) + "/keys"
}

func keysList() *cobra.Command {
	var out outputFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the keys of a project, or without --project those of all",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := newClient(cmd)
			if err != nil {
				return err
			}
			list, err := c.allKeys(cmd)
			if err != nil {
				return err
			}
			rows := [][]string{keyHeader}
			for i := range list {
				rows = append(rows, list[i].cells())
			}
			return out.print(cmd.OutOrStdout(), list, rows)
		},
	}
	clientFlags(cmd)
	out.flags(cmd)
	return cmd
}

// allKeys lists the keys of the client's project; without one, those of every project and those that open all.
func (c *client) allKeys(cmd *cobra.Command) ([]keyRow, error) {
	paths := []string{c.keysPath()}
	if c.project == "" {
		var a struct {
			Projects []projectRow `json:"projects"`
		}
		if err := c.ask(cmd.Context(), "GET", "/v1/projects", nil, &a); err != nil {
			return nil, err
		}
		for _, p := range a.Projects {
			paths = append(paths, "/v1/projects/"+url.PathEscape(p.ID)+"/keys")
		}
	}
	list := []keyRow{}
	for _, path := range paths {
		var a struct {
			Keys []keyRow `json:"keys"`
		}
		if err := c.ask(cmd.Context(), "GET", path, nil, &a); err != nil {
			return nil, err
		}
		list = append(list, a.Keys...)
	}
	return list, nil
}

func keysCreate() *cobra.Command {
	var out outputFlags
	var name, scope, expires string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a key and print it, once",
		Example: "  rollcall keys create --project shop --scope write --name web\n" +
			"  rollcall keys create --project shop --scope read --name wall --expires 90d",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			end, err := expiry(expires, time.Now())
			if err != nil {
				return err
			}
			c, err := newClient(cmd)
			if err != nil {
				return err
			}
			body := map[string]any{"name": name, "scope": scope}
			if !end.IsZero() {
				body["expires"] = end
			}
			var k keyRow
			if err := c.ask(cmd.Context(), "POST", c.keysPath(), body, &k); err != nil {
				return err
			}
			return printMade(cmd, &out, k, k)
		},
	}
	clientFlags(cmd)
	out.flags(cmd)
	cmd.Flags().StringVar(&scope, "scope", "write", "write, read or admin")
	cmd.Flags().StringVar(&name, "name", "", "what it is for")
	cmd.Flags().StringVar(&expires, "expires", "", "instant (RFC 3339), date, or span from now such as 90d; by default never")
	return cmd
}

// printMade shows a key that exists nowhere else: as the last line, so that a script can take it.
func printMade(cmd *cobra.Command, out *outputFlags, v any, k keyRow) error {
	if out.asJSON || out.asCSV {
		return out.print(cmd.OutOrStdout(), v, [][]string{append([]string{"SECRET"}, keyHeader...), append([]string{k.Key}, k.cells()...)})
	}
	if err := out.print(cmd.ErrOrStderr(), v, [][]string{keyHeader, k.cells()}); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(cmd.ErrOrStderr(), "\nThis is the only time that the key is shown:"); err != nil {
		return err
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), k.Key)
	return err
}

// expiry reads an instant, a date (its midnight in UTC) or a span from now. "" is never.
func expiry(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	var d clock.Duration
	if err := d.UnmarshalText([]byte(text)); err != nil || d <= 0 {
		return time.Time{}, fmt.Errorf("--expires %q: want an instant (2027-01-01T00:00:00Z), a date or a span (90d)", text)
	}
	return now.Add(time.Duration(d)).UTC().Truncate(time.Second), nil
}

func keysRevoke() *cobra.Command {
	var out outputFlags
	cmd := &cobra.Command{
		Use:   "revoke KEY",
		Short: "End a key at once",
		Long:  "Revoke ends a key at once. KEY is its id, the first 12 characters.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := newClient(cmd)
			if err != nil {
				return err
			}
			var k keyRow
			if err := c.ask(cmd.Context(), "DELETE", c.keysPath()+"/"+url.PathEscape(project.KeyID(args[0])), nil, &k); err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), k, [][]string{keyHeader, k.cells()})
		},
	}
	clientFlags(cmd)
	out.flags(cmd)
	return cmd
}

func keysRotate() *cobra.Command {
	var out outputFlags
	var grace string
	cmd := &cobra.Command{
		Use:   "rotate KEY",
		Short: "Make a key like an old one, which goes on working for a while",
		Long:  "Rotate makes a key with the project, scope and name of an old one. The old one still works for --grace. KEY is its id, the first 12 characters.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := newClient(cmd)
			if err != nil {
				return err
			}
			var a struct {
				Old keyRow `json:"old"`
				New keyRow `json:"new"`
			}
			path := c.keysPath() + "/" + url.PathEscape(project.KeyID(args[0])) + "/rotate"
			if err := c.ask(cmd.Context(), "POST", path, map[string]any{"grace": grace}, &a); err != nil {
				return err
			}
			if !out.asJSON && !out.asCSV {
				if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "%s works until %s.\n\n", a.Old.ID, instant(a.Old.Expires)); err != nil {
					return err
				}
			}
			return printMade(cmd, &out, a, a.New)
		},
	}
	clientFlags(cmd)
	out.flags(cmd)
	cmd.Flags().StringVar(&grace, "grace", "24h", "how long the old key still works, at most 90d")
	return cmd
}

// keysGenerate needs no server: its key goes into a configuration file by its hash.
func keysGenerate() *cobra.Command {
	var scope string
	cmd := &cobra.Command{
		Use:   "generate",
		Short: "Make a key for rollcall.yaml, without a server",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := project.ParseScope(scope)
			if err != nil {
				return fmt.Errorf("--scope %w", err)
			}
			secret := project.Generate(s)
			sum := sha256.Sum256([]byte(secret))
			if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "In rollcall.yaml, under the project's keys:\n\n  - {kind: %s, sha256: %q}\n\nThe key, which is kept nowhere:\n", s, hex.EncodeToString(sum[:])); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), secret)
			return err
		},
	}
	cmd.Flags().StringVar(&scope, "scope", "write", "write, read or admin")
	return cmd
}
