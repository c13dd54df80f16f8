// Package files reads files of other programs as events: a web server's log, a CSV table, lines of JSON. It only translates; the
// server that is sent the events judges them.
package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/zeebo/xxh3"

	"github.com/rollcall/rollcall/ingest"
)

// MaxLine is the most bytes of a row of the input. A longer one is refused alone and read over without being kept.
const MaxLine = 64 << 10

// The formats.
const (
	Combined = "combined" // NCSA combined log: see combined.go
	CSV      = "csv"      // RFC 4180 with a header line: see csv.go
	NDJSON   = "ndjson"   // events as POST /v1/events takes them, one on a line: see ndjson.go
)

// Options say how a file becomes events. A field is a column of a CSV table, or one of the names in combined.go.
type Options struct {
	Format string
	Name   string   // the file's base name, part of the ids
	Event  string   // name of the events; in CSV (column "event") and NDJSON only for those that have none
	User   string   // field that is the user; "" = none
	TS     string   // field that is the time; Combined always takes the log's
	Value  string   // field that is the value; "" = none
	ID     string   // field that is the id; without it an id is made from Name, the line's number and its content
	Props  []string // KEY=FIELD
}

// Row is one row of the input: an event, or the reason why it is none.
type Row struct {
	Line   int64  // number of its first physical line, from 1
	Text   []byte // as it stands in the file, without the line's end; cut to MaxLine
	Event  []byte // one JSON object without a line break; nil if there is a Reason
	Reason string
}

// Source reads a file row by row. Only Read may be called by another goroutine.
type Source struct {
	lines  lines
	format format
	name   uint64 // hash of Options.Name
	hasID  bool   // the row at hand brought its own id
	read   atomic.Int64
}

// format translates rows. The slices it is given and gives are valid until its next call.
type format interface {
	// next reads one row and appends it as the members of a JSON object, without the braces. If one of them is its id it sets
	// s.hasID. The error is io.EOF, a fault of the input's reader, or a rowError.
	next(s *Source, dst []byte) (text, members []byte, err error)
}

// rowError is the reason why a row is no event.
type rowError string

func (e rowError) Error() string { return string(e) }

// Open begins to read r, and with CSV reads the header. It fails if the options do not fit the format or the header.
func Open(r io.Reader, o Options) (*Source, error) {
	name := o.Name
	if o.Event != "" { // the same lines as other events are other events
		name += "\x00" + o.Event
	}
	s := &Source{name: xxh3.HashString(name)}
	s.lines.init(r, &s.read)
	props, err := mappings(o.Props)
	if err != nil {
		return nil, err
	}
	switch o.Format {
	case Combined:
		s.format, err = newCombined(o, props)
	case CSV:
		s.format, err = newTable(s, o, props)
	case NDJSON:
		s.format, err = newObjects(o)
	default:
		err = fmt.Errorf("format %q: want %s, %s or %s", o.Format, Combined, CSV, NDJSON)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Read is how many bytes of the input have become rows so far.
func (s *Source) Read() int64 { return s.read.Load() }

// Next returns the next row; its slices are the caller's. The error is io.EOF after the last row, or the reader's own.
func (s *Source) Next() (Row, error) {
	var members [512]byte
	s.hasID = false
	text, event, err := s.format.next(s, members[:0])
	row := Row{Line: s.lines.first}
	var bad rowError
	switch {
	case errors.As(err, &bad):
		row.Text, row.Reason = bytes.Clone(text), string(bad)
		return row, nil
	case err != nil:
		return Row{}, err
	}
	buf := make([]byte, 0, len(text)+len(event)+48)
	buf = append(buf, text...)
	row.Text = buf[:len(text):len(text)]
	buf = append(buf, '{')
	if !s.hasID {
		buf = s.appendID(append(buf, `"id":`...), row.Line, text)
		if len(event) > 0 {
			buf = append(buf, ',')
		}
	}
	buf = append(append(buf, event...), '}')
	row.Event = buf[len(text):]
	return row, nil
}

// appendID makes a row's id from the file's name, the name of its events, the line's number and its text: the same for each import of the
// same file as the same events, and another for each row. It looks like a UUID (version 8, RFC 9562), which is what takes least room in the journal.
func (s *Source) appendID(dst []byte, line int64, text []byte) []byte {
	h := xxh3.Hash128Seed(text, s.name^uint64(line)*0x9e3779b97f4a7c15)
	b := h.Bytes()
	b[6] = b[6]&0x0f | 0x80
	b[8] = b[8]&0x3f | 0x80
	return fmt.Appendf(dst, `"%x-%x-%x-%x-%x"`, b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// mapping is one of Options.Props.
type mapping struct{ key, field string }

func mappings(props []string) ([]mapping, error) {
	var out []mapping
	for _, p := range props {
		key, field, ok := strings.Cut(p, "=")
		if !ok || key == "" || field == "" {
			return nil, fmt.Errorf("prop %q: want KEY=FIELD", p)
		}
		for _, m := range out {
			if m.key == key {
				return nil, fmt.Errorf("prop %q is given twice", key)
			}
		}
		out = append(out, mapping{key, field})
	}
	return out, nil
}

// member appends one member whose value is a string. Nothing that is not UTF-8 may come here.
func member(dst []byte, name, value string) []byte {
	if len(dst) > 0 {
		dst = append(dst, ',')
	}
	return ingest.AppendQuoted(append(ingest.AppendQuoted(dst, name), ':'), value)
}

// raw appends one member whose value is JSON already.
func raw(dst []byte, name, value string) []byte {
	if len(dst) > 0 {
		dst = append(dst, ',')
	}
	return append(append(ingest.AppendQuoted(dst, name), ':'), value...)
}

// cut shortens s to at most n bytes, between two characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
