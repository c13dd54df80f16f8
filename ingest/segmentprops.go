package ingest

import (
	"strings"
	"unicode/utf8"

	"github.com/rollcall/rollcall/internal/event"
)

// The properties of a Segment message become props. They are taken in their order while there is room; what no prop can hold is
// left out: null, arrays, keys of more than 64 bytes, what is not UTF-8. Objects are flattened with dots. Of several
// with one key the first stays.
//
// A page or a screen puts its name and category in front and has two props of its own at the end: page, a path without its query,
// and referrer, a host. What they are made of (path, url, page, referrer) and search are no props of their own.

// pageProps is how many props of a page or screen are kept free for page and referrer.
const pageProps = 2

// properties is what is set aside while a message's properties are read.
type properties struct {
	page           bool // it is a page or a screen
	room           int  // how many props there may be
	path, url, own string
	referrer       string
	value, revenue bool // the event's value is that of such a property
}

// messageProps makes the props and the value out of what the message has.
func (j *judge) messageProps(call string, at *members) {
	p := properties{room: event.MaxProps}
	switch call {
	case CallPage, CallScreen:
		p.page = true
		p.room -= pageProps
		for _, m := range [...]int{memberName, memberCategory} {
			if j.i = at[m]; j.i > 0 {
				j.property(&p, memberNames[m])
			}
		}
	case CallTrack:
	default:
		return // traits are not stored
	}
	if j.i = at[memberProperties]; j.i > 0 && j.b[j.i] == '{' {
		j.flatten(&p, "")
	}
	if !p.page {
		return
	}
	p.room = event.MaxProps
	page := p.path
	for _, other := range [...]string{p.url, p.own} {
		if page == "" {
			page = other
		}
	}
	j.keep(&p, "page", event.String, pathOf(page))
	j.keep(&p, "referrer", event.String, hostOf(p.referrer))
}

// flatten takes the members of the object at j.i; prefix is the key of that object and a dot, "" for the properties themselves.
func (j *judge) flatten(p *properties, prefix string) {
	j.i++
	if j.eat('}') {
		return
	}
	for {
		j.space()
		t, _ := j.str()
		j.eat(':')
		j.space()
		key, ok := t.decode(&j.scratch)
		switch {
		case !ok || key == "" || len(prefix)+len(key) > event.MaxPropKey || hasControl(key):
			j.skip()
		case prefix != "":
			from := len(j.scratch)
			j.scratch = append(append(j.scratch, prefix...), key...)
			j.property(p, alias(j.scratch[from:]))
		case p.page && j.setAside(p, key):
		default:
			j.money(p, key)
			j.property(p, key)
		}
		if !j.eat(',') {
			j.eat('}')
			return
		}
	}
}

// setAside reads a property of a page that is no prop of its own; it answers false, and reads nothing, if key is another one.
func (j *judge) setAside(p *properties, key string) bool {
	var to *string
	switch key {
	case "path":
		to = &p.path
	case "url":
		to = &p.url
	case "page":
		to = &p.own
	case "referrer":
		to = &p.referrer
	case "search":
	default:
		return false
	}
	if to == nil || *to != "" || j.peek() != '"' {
		j.skip()
		return true
	}
	t, _ := j.str()
	if v, ok := t.decode(&j.scratch); ok {
		*to = v
	}
	return true
}

// money makes the event's value of a property: value, else revenue, if it is a number; revenue may be a string that is nothing
// else. The property stays a prop. It does not move.
func (j *judge) money(p *properties, key string) {
	if key != "value" && key != "revenue" || p.value || key == "revenue" && p.revenue {
		return
	}
	from := j.i
	lit := ""
	switch c := j.peek(); {
	case c == '-' || c-'0' <= 9:
		n, _, _ := j.number()
		lit = alias(n)
	case c == '"' && key == "revenue":
		t, _ := j.str()
		s := scanner{b: t.raw}
		if n, _, ok := s.number(); ok && s.i == len(t.raw) {
			lit = alias(n)
		}
	}
	j.i = from
	if lit == "" || len(lit) > event.MaxValue || !finite(lit) {
		return
	}
	j.Value = lit
	p.value, p.revenue = key == "value", true
}

// property takes the value at j.i as the prop of a key that keeps the rules.
func (j *judge) property(p *properties, key string) {
	switch c := j.peek(); c {
	case '"':
		t, _ := j.str()
		if v, ok := t.decode(&j.scratch); ok {
			j.keep(p, key, event.String, cut(v, event.MaxPropValue))
		}
	case 't':
		j.i += len("true")
		j.keep(p, key, event.True, "")
	case 'f':
		j.i += len("false")
		j.keep(p, key, event.False, "")
	case '{':
		if len(key) >= event.MaxPropKey-1 || j.full(p) { // nothing in it has room
			j.skip()
			return
		}
		from := len(j.scratch)
		j.scratch = append(append(j.scratch, key...), '.')
		j.flatten(p, alias(j.scratch[from:]))
	case 'n', '[':
		j.skip()
	default:
		n, _, _ := j.number()
		if v := alias(n); len(v) <= event.MaxPropValue && finite(v) {
			j.keep(p, key, event.Number, v)
		}
	}
}

func (j *judge) full(p *properties) bool { return j.kept >= p.room }

// keep adds a prop if there is room and none of its key. An empty page or referrer is none.
func (j *judge) keep(p *properties, key string, kind event.Kind, value string) {
	if j.full(p) || p.page && value == "" && (key == "page" || key == "referrer") {
		return
	}
	for _, k := range j.keys[:j.kept] {
		if k == key {
			return
		}
	}
	j.keys[j.kept] = key
	j.kept++
	j.object.props.Append(key, kind, value)
}

// pathOf returns the path of a URL, or of a path, without query and fragment, cut to what a prop may hold. A URL without a path
// has the path /.
func pathOf(s string) string {
	if s == "" {
		return ""
	}
	if _, rest, ok := strings.Cut(cutAny(s, "?#"), "://"); ok {
		i := strings.IndexByte(rest, '/')
		if i < 0 {
			return "/"
		}
		s = rest[i:]
	}
	return cut(cutAny(s, "?#"), event.MaxPropValue)
}

// hostOf returns the host of a URL, without user and port. What is no URL is its own host, up to a slash.
func hostOf(s string) string {
	s = cutAny(s, "?#")
	if _, rest, ok := strings.Cut(s, "//"); ok {
		s = rest
	}
	s = cutAny(s, "/")
	s = s[strings.LastIndexByte(s, '@')+1:]
	if i := strings.LastIndexByte(s, ':'); i >= 0 && strings.IndexByte(s[i:], ']') < 0 {
		s = s[:i]
	}
	return cut(strings.ToLower(s), event.MaxPropValue)
}

// cutAny returns s up to the first of some characters.
func cutAny(s, chars string) string {
	if i := strings.IndexAny(s, chars); i >= 0 {
		return s[:i]
	}
	return s
}

// cut returns s, cut to at most n bytes between two characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
