package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// question is a command that asks the server for numbers, with a flag for each parameter.
type question struct {
	cmd    *cobra.Command
	path   string
	out    outputFlags
	params map[string]*string
	table  func(answer []byte) (string, error) // what people get to read
}

// newQuestion makes cmd one.
func newQuestion(cmd *cobra.Command, path string) *question {
	q := &question{cmd: cmd, path: path, params: map[string]*string{}}
	clientFlags(cmd)
	q.out.flags(cmd)
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return q.ask(cmd) }
	return q
}

// text is a parameter. The flag has its name, with hyphens.
func (q *question) text(name, otherwise, help string) *string {
	q.params[name] = q.cmd.Flags().String(strings.ReplaceAll(name, "_", "-"), otherwise, help)
	return q.params[name]
}

// span is the parameters of a range.
func (q *question) span(otherwise string) {
	q.text("from", "", "first date in the project's zone, or RFC 3339 instant")
	q.text("to", "", "date or instant that the range ends before (default: the end of today)")
	q.text("period", "", "instead of from and to: today, yesterday, or 1d to 400d, the last of them today (default "+otherwise+")")
}

func (q *question) ask(cmd *cobra.Command) error {
	c, err := newClient(cmd)
	if err != nil {
		return err
	}
	values := url.Values{}
	for name, v := range q.params {
		if *v != "" {
			values.Set(name, *v)
		}
	}
	path := q.path
	if q.out.asCSV {
		path += ".csv"
	}
	res, err := c.call(cmd.Context(), "GET", path, values, nil, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return refused(res)
	}
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if !q.out.asJSON && !q.out.asCSV {
		text, err := q.table(answer)
		if err != nil {
			return fmt.Errorf("reading the answer: %w", err)
		}
		answer = []byte(text)
	}
	_, err = cmd.OutOrStdout().Write(answer)
	return err
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
