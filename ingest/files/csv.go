package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// table reads CSV (RFC 4180): a header line, fields between commas, in double quotes if they have commas, quotes (doubled) or line
// breaks. An empty cell is no value, except the time's: a row without its time would be counted as of now, so it is refused.
type table struct {
	event                     string
	name, user, ts, value, id int // columns, -1 = none
	props                     []prop
	columns                   int
	rec                       []byte
	row                       []string
}

// newTable reads the header.
func newTable(s *Source, o Options, props []mapping) (*table, error) {
	t := &table{event: o.Event}
	if _, err := t.record(s); err == io.EOF {
		return nil, errors.New("the file is empty: it has no header")
	} else if err != nil {
		return nil, fmt.Errorf("the header of the table cannot be read: %w", err)
	}
	header := slices.Clone(t.row)
	t.columns = len(header)
	var err error
	find := func(name string) int {
		if name == "" {
			return -1
		}
		i := slices.Index(header, name)
		if i < 0 && err == nil {
			err = fmt.Errorf("the table has no column %q; it has %s", name, strings.Join(header, ", "))
		}
		if i >= 0 && slices.Contains(header[i+1:], name) && err == nil {
			err = fmt.Errorf("the table has two columns %q", name)
		}
		return i
	}
	t.name = slices.Index(header, "event")
	t.user, t.ts, t.value, t.id = find(o.User), find(o.TS), find(o.Value), find(o.ID)
	for _, m := range props {
		t.props = append(t.props, prop{m.key, find(m.field)})
	}
	if t.name < 0 && t.event == "" && err == nil {
		err = fmt.Errorf("the table has no column event, so the events need a name (--event)")
	}
	if t.ts < 0 && err == nil {
		err = fmt.Errorf("which column is the time? (--ts); the table has %s", strings.Join(header, ", "))
	}
	return t, err
}

func (t *table) next(s *Source, dst []byte) (text, members []byte, err error) {
	text, err = t.record(s)
	if err != nil {
		return text, nil, err
	}
	if len(t.row) != t.columns {
		return text, nil, rowError(fmt.Sprintf("the row has %d fields, the header %d", len(t.row), t.columns))
	}
	if !utf8.Valid(text) {
		return text, nil, rowError("the row is not valid UTF-8")
	}
	if t.row[t.ts] == "" {
		return text, nil, rowError("the row has no time")
	}
	event := t.event
	if t.name >= 0 && t.row[t.name] != "" {
		event = t.row[t.name]
	}
	dst = member(dst, "event", event)
	dst = member(dst, "ts", t.row[t.ts])
	if t.user >= 0 && t.row[t.user] != "" {
		dst = member(dst, "user", t.row[t.user])
	}
	if t.id >= 0 && t.row[t.id] != "" {
		s.hasID = true
		dst = member(dst, "id", t.row[t.id])
	}
	if t.value >= 0 && t.row[t.value] != "" {
		dst = number(dst, "value", t.row[t.value])
	}
	var props []byte
	for _, p := range t.props {
		if v := t.row[p.field]; v != "" {
			props = member(props, p.key, v)
		}
	}
	if props != nil {
		dst = raw(dst, "props", "{"+string(props)+"}")
	}
	return text, dst, nil
}

// record reads one record into t.row. If a quote is opened and not closed within MaxLine, only the physical line that opens it is
// refused, and reading goes on with the next one.
func (t *table) record(s *Source) (text []byte, err error) {
	line, err := s.lines.row()
	if err != nil {
		return line, err
	}
	start := s.lines.next
	t.rec = append(t.rec[:0], line...)
	if bytes.IndexByte(line, '"') < 0 {
		t.row = t.row[:0]
		for cell := range strings.SplitSeq(string(line), ",") {
			t.row = append(t.row, cell)
		}
		return t.rec, nil
	}
	first := len(t.rec)
	for {
		more, err := t.split(string(t.rec))
		if !more {
			return t.rec, err
		}
		for more {
			t.rec = append(t.rec, '\n')
			line, err := s.lines.line()
			if err != nil || len(t.rec)+len(line) > MaxLine {
				if _, long := err.(rowError); err == nil || long { // it is to be read again, or read over, as a row
					t.rec = append(t.rec, line...)
				}
				s.lines.rewind(bytes.Clone(t.rec[first+1:]), start, err == errTooLong)
				t.rec = t.rec[:first]
				return t.rec, rowError("a quote is opened and not closed")
			}
			t.rec = append(t.rec, trimEnd(line)...)
			more = bytes.IndexByte(line, '"') < 0
		}
	}
}

// split cuts a record into t.row; more tells that it ends inside quotes.
func (t *table) split(rec string) (more bool, err error) {
	t.row = t.row[:0]
	for {
		if rec == "" || rec[0] != '"' {
			cell, rest, found := strings.Cut(rec, ",")
			if strings.IndexByte(cell, '"') >= 0 {
				return false, rowError("a quote stands inside a field that is not in quotes")
			}
			t.row = append(t.row, cell)
			if !found {
				return false, nil
			}
			rec = rest
			continue
		}
		rec = rec[1:]
		var cell string
		for {
			part, rest, found := strings.Cut(rec, `"`)
			if !found {
				return true, nil
			}
			cell += part
			rec = rest
			if rec == "" || rec[0] != '"' {
				break
			}
			cell += `"`
			rec = rec[1:]
		}
		t.row = append(t.row, cell)
		switch {
		case rec == "":
			return false, nil
		case rec[0] != ',':
			return false, rowError("something stands between a closing quote and the comma")
		}
		rec = rec[1:]
	}
}
