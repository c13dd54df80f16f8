package files

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// combined reads the NCSA combined log format, as Apache and nginx write it:
//
//	addr ident user [time] "method target protocol" status bytes "referer" "agent"
//
// and whatever follows behind a space. "-" is no value. Inside quotes \" \\ \t \n \r and \xhh are what they stand for; bytes that
// are not UTF-8 become %HH. path is the target without its query and fragment. path, referer and agent are cut to 1 KiB, the limit
// of a prop, so that a long URL does not cost the page view.
type combined struct {
	event string
	user  int // index into combinedFields, -1 = none
	value int
	id    int
	props []prop
	row   [len(combinedFields)]string
}

// combinedFields are the names that options may use.
var combinedFields = [...]string{"addr", "user", "method", "path", "query", "status", "bytes", "referer", "agent"}

const (
	fAddr = iota
	fUser
	fMethod
	fPath
	fQuery
	fStatus
	fBytes
	fReferer
	fAgent
)

// prop is a mapping whose field was found.
type prop struct {
	key   string
	field int
}

const maxProp = 1 << 10 // bytes of a prop's value, ingest's limit

func newCombined(o Options, props []mapping) (*combined, error) {
	if o.Event == "" {
		return nil, fmt.Errorf("format combined needs the name of the events (--event)")
	}
	if o.TS != "" && o.TS != "time" {
		return nil, fmt.Errorf("format combined takes the log's own time, not %q", o.TS)
	}
	c := &combined{event: o.Event}
	var err error
	find := func(name string) int {
		if name == "" {
			return -1
		}
		i := slices.Index(combinedFields[:], name)
		if i < 0 && err == nil {
			err = fmt.Errorf("format combined has no field %q; it has %s", name, strings.Join(combinedFields[:], ", "))
		}
		return i
	}
	c.user, c.value, c.id = find(o.User), find(o.Value), find(o.ID)
	for _, m := range props {
		c.props = append(c.props, prop{m.key, find(m.field)})
	}
	return c, err
}

func (c *combined) next(s *Source, dst []byte) (text, members []byte, err error) {
	text, err = s.lines.row()
	if err != nil {
		return text, nil, err
	}
	at, err := c.parse(string(text))
	if err != nil {
		return text, nil, err
	}
	dst = member(dst, "event", c.event)
	dst = member(dst, "ts", at.Format(time.RFC3339))
	if c.user >= 0 && c.row[c.user] != "" {
		dst = member(dst, "user", c.row[c.user])
	}
	if c.id >= 0 && c.row[c.id] != "" {
		s.hasID = true
		dst = member(dst, "id", c.row[c.id])
	}
	if c.value >= 0 && c.row[c.value] != "" {
		dst = number(dst, "value", c.row[c.value])
	}
	var props []byte
	for _, p := range c.props {
		switch v := c.row[p.field]; {
		case v == "":
		case p.field == fStatus || p.field == fBytes:
			props = number(props, p.key, v)
		default:
			props = member(props, p.key, cut(v, maxProp))
		}
	}
	if props != nil {
		dst = raw(dst, "props", "{"+string(props)+"}")
	}
	return text, dst, nil
}

// number appends a number as one, anything else as the string it is, for ingest to refuse.
func number(dst []byte, name, v string) []byte {
	if json.Valid([]byte(v)) && strings.Trim(v, "+-.0123456789eE") == "" {
		return raw(dst, name, v)
	}
	return member(dst, name, v)
}

// parse fills c.row.
func (c *combined) parse(line string) (at time.Time, err error) {
	c.row = [len(combinedFields)]string{}
	word := func(what string) string {
		w, rest, ok := strings.Cut(line, " ")
		if err == nil && (!ok || w == "") {
			err = rowError("the line ends before its " + what)
		}
		line = rest
		return dash(w)
	}
	quoted := func(what string) string {
		v, rest, ok := unquote(line)
		if err == nil && !ok {
			err = rowError("the line is cut off in its " + what + ", or it is not in quotes")
		}
		line = strings.TrimPrefix(rest, " ")
		return dash(v)
	}
	c.row[fAddr] = printable(word("address"))
	word("identity")
	if err != nil {
		return at, err
	}
	// A user name may have spaces; the time begins behind the next " [".
	user, rest, ok := strings.Cut(line, " [")
	if !ok {
		return at, rowError("the line has no [time]")
	}
	c.row[fUser] = printable(dash(user))
	clock, rest, ok := strings.Cut(rest, "] ")
	if !ok {
		return at, rowError("the line is cut off in its time")
	}
	at, perr := time.Parse("02/Jan/2006:15:04:05 -0700", clock)
	if perr != nil {
		return at, rowError("the time is not like 17/May/2015:10:05:03 +0000")
	}
	line = rest
	request := quoted("request")
	c.row[fStatus] = printable(word("status"))
	c.row[fBytes] = printable(word("bytes"))
	c.row[fReferer] = quoted("referer")
	c.row[fAgent] = quoted("agent")
	if err != nil {
		return at, err
	}
	// What is no request line (a port scan, TLS on a plain port) has no path.
	if parts := strings.Fields(request); len(parts) >= 2 {
		c.row[fMethod] = parts[0]
		target, _, _ := strings.Cut(parts[1], "#")
		c.row[fPath], c.row[fQuery], _ = strings.Cut(target, "?")
	}
	return at, nil
}

// dash is a field whose "-" means nothing.
func dash(s string) string {
	if s == "-" {
		return ""
	}
	return s
}

// unquote reads a string in quotes at the start of s.
func unquote(s string) (v, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		return "", "", false
	}
	s = s[1:]
	end := strings.IndexAny(s, `"\`)
	if end >= 0 && s[end] == '"' {
		return printable(s[:end]), s[end+1:], true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return printable(b.String()), s[i+1:], true
		case c != '\\' || i+1 == len(s):
			b.WriteByte(c)
		default:
			i++
			if s[i] == 'x' && i+2 < len(s) {
				if hex, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
					b.WriteByte(byte(hex))
					i += 2
					continue
				}
			}
			switch s[i] {
			case 't':
				b.WriteByte('\t')
			case 'n':
				b.WriteByte('\n')
			case 'r':
				b.WriteByte('\r')
			case '"', '\\':
				b.WriteByte(s[i])
			default:
				b.WriteByte('\\')
				b.WriteByte(s[i])
			}
		}
	}
	return "", "", false
}

// printable writes NUL and bytes that are not UTF-8 as %HH.
func printable(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	var b []byte
	for i, r := range s {
		_, n := utf8.DecodeRuneInString(s[i:])
		if r == 0 || r == utf8.RuneError && n == 1 {
			b = fmt.Appendf(b, "%%%02X", s[i])
			continue
		}
		b = utf8.AppendRune(b, r)
	}
	return string(b)
}
