package ingest

import (
	"github.com/rollcall/rollcall/internal/event"
)

// readProps reads the props: null or a flat object. A prop that is null is left out.
func (j *judge) readProps() bool {
	switch j.peek() {
	case '{':
	case 'n':
		return j.word("null")
	default:
		j.blame(CodeBadProps, "props")
		return j.skip()
	}
	j.i++
	if j.eat('}') {
		return true
	}
	for n := 0; ; {
		if j.space() != '"' {
			return false
		}
		t, ok := j.str()
		if !ok || !j.eat(':') {
			return false
		}
		key, ok := t.decode(&j.scratch)
		switch {
		case !ok:
			j.blame(CodeBadUTF8, "props")
		case key == "" || hasControl(key):
			j.blame(CodeBadProps, "props")
		case len(key) > event.MaxPropKey:
			j.blame(CodeTooLong, j.propField(key))
		}
		j.space()
		kept, ok := j.prop(key)
		if !ok {
			return false
		}
		if kept && j.fault.code == "" {
			if n == event.MaxProps {
				j.blame(CodeTooManyProps, "props")
			} else {
				for _, k := range j.keys[:n] {
					if k == key {
						j.blame(CodeDuplicateField, j.propField(key))
					}
				}
				j.keys[n] = key
				n++
			}
		}
		if j.eat(',') {
			continue
		}
		return j.eat('}')
	}
}

// prop reads one prop's value and adds it, unless the event is refused already.
func (j *judge) prop(key string) (kept, ok bool) {
	kind, value := event.String, ""
	switch c := j.peek(); c {
	case '"':
		var t text
		if t, ok = j.str(); !ok {
			return false, false
		}
		var valid bool
		if value, valid = t.decode(&j.scratch); !valid {
			j.blame(CodeBadUTF8, j.propField(key))
		}
	case 't':
		kind = event.True
		ok = j.word("true")
	case 'f':
		kind = event.False
		ok = j.word("false")
	case 'n':
		return false, j.word("null")
	case '{', '[':
		j.blame(CodeNestedProp, j.propField(key))
		return false, j.skip()
	default:
		var lit []byte
		if lit, _, ok = j.number(); !ok {
			return false, false
		}
		kind, value = event.Number, alias(lit)
		if !finite(value) {
			j.blame(CodeBadProps, j.propField(key))
		}
	}
	if len(value) > event.MaxPropValue {
		j.blame(CodeTooLong, j.propField(key))
	}
	if j.fault.code == "" {
		j.object.props.Append(key, kind, value)
	}
	return true, ok
}

// propField names a prop in a rejection: props.page, or only props if the event has a fault already, whose name counts, or if the
// key is not fit to be repeated.
func (j *judge) propField(key string) string {
	if j.fault.code != "" || len(key) > event.MaxPropKey || key == "" || hasControl(key) {
		return "props"
	}
	return "props." + key
}
