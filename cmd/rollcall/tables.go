package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rollcall/rollcall/counters"
)

// ask sends a request with a JSON body (nil = none) and reads the answer into to. What is no success is an error.
func (c *client) ask(ctx context.Context, method, path string, body, to any) error {
	var in io.Reader
	header := http.Header{}
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in = bytes.NewReader(b)
		header.Set("Content-Type", "application/json")
	}
	res, err := c.call(ctx, method, path, url.Values{}, in, header)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return refused(res)
	}
	if err := json.NewDecoder(res.Body).Decode(to); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	return nil
}

// output is how a command prints a table.
type outputFlags struct{ asJSON, asCSV bool }

func (o *outputFlags) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&o.asCSV, "csv", false, "print CSV")
	cmd.MarkFlagsMutuallyExclusive("json", "csv")
}

// text is a client's text as a cell: in CSV no formula, on a terminal nothing that it would obey.
func (o *outputFlags) text(s string) string {
	if o.asCSV {
		return counters.Cell(s)
	}
	return printable(s)
}

// print writes rows, of which the first is the header, or v as JSON.
func (o *outputFlags) print(w io.Writer, v any, rows [][]string) error {
	if o.asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	if o.asCSV {
		return csv.NewWriter(w).WriteAll(rows)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	var err error
	for _, r := range rows {
		for i, cell := range r {
			if i > 0 {
				cell = "\t" + cell
			}
			_, e := io.WriteString(t, cell)
			err = errors.Join(err, e)
		}
		_, e := io.WriteString(t, "\n")
		err = errors.Join(err, e)
	}
	return errors.Join(err, t.Flush())
}

func instant(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04Z")
}
