package ingest

import (
	"strconv"
	"strings"

	"github.com/rollcall/rollcall/internal/event"
)

// object is what was read of one object: an event, or the envelope around several.
type object struct {
	event.Event
	sent    instant // its own sent_at
	ts      instant
	events  int  // where its array "events" begins, 0 = it has none
	twice   bool // it has events or sent_at twice
	seen    uint8
	fault   fault
	props   event.Props
	keys    [event.MaxProps]string
	kept    int    // how many of keys, of a Segment message
	scratch []byte // what strings with escapes stand for
}

// fault is the first thing wrong with an event, "" = nothing.
type fault struct{ code, field string }

// seen has a bit for each known field that the object has.
const (
	seenEvent = 1 << iota
	seenUser
	seenID
	seenTS
	seenSentAt
	seenValue
	seenProps
	seenEvents
)

func (o *object) blame(code, field string) {
	if o.fault.code == "" {
		o.fault = fault{code, field}
	}
}

// clear makes it ready for the next object; scratch and props keep their room.
func (o *object) clear() {
	o.Event = event.Event{}
	o.sent, o.ts = instant{}, instant{}
	o.events, o.twice, o.seen, o.kept, o.fault = 0, false, 0, 0, fault{}
	o.props, o.scratch = o.props[:0], o.scratch[:0]
}

// readObject reads the object at j.i and judges field by field. Fields that it does not know are read over. It answers false if
// this is not JSON; a broken rule is noted as the object's fault.
func (j *judge) readObject() bool {
	o := &j.object
	o.clear()
	j.i++
	if j.eat('}') {
		return true
	}
	for {
		if j.space() != '"' {
			return false
		}
		t, ok := j.str()
		if !ok || !j.eat(':') {
			return false
		}
		name := alias(t.raw)
		if t.escaped {
			if name, ok = t.decode(&o.scratch); !ok {
				name = "" // no field of ours
			}
		}
		j.space()
		if !j.field(name) {
			return false
		}
		if j.eat(',') {
			continue
		}
		return j.eat('}')
	}
}

// field reads the value of one field.
func (j *judge) field(name string) bool {
	switch name {
	case "event":
		return j.once(seenEvent, "event") && j.name()
	case "user":
		v, ok := j.label(seenUser, "user", CodeBadUser, event.MaxUser)
		if !ok {
			return false
		}
		if v != "" && isPlaceholder(v) {
			j.blame(CodePlaceholder, "user")
		}
		j.User = v
		return true
	case "id":
		v, ok := j.label(seenID, "id", CodeBadID, event.MaxID)
		j.ID = v
		return ok
	case "ts":
		return j.once(seenTS, "ts") && j.instant(&j.ts, "ts")
	case "sent_at":
		return j.once(seenSentAt, "sent_at") && j.instant(&j.sent, "sent_at")
	case "value":
		return j.once(seenValue, "value") && j.value()
	case "props":
		return j.once(seenProps, "props") && j.readProps()
	case "events":
		from := j.i
		if j.i < len(j.b) && j.b[j.i] == '[' {
			j.once(seenEvents, "events")
			j.object.events = from
		}
		return j.skip()
	default:
		return j.skip()
	}
}

// once notes that the object has a field, and blames a second one. It always answers true, for chaining.
func (j *judge) once(bit uint8, field string) bool {
	if j.seen&bit != 0 {
		j.blame(CodeDuplicateField, field)
		j.twice = j.twice || bit&(seenEvents|seenSentAt) != 0
	}
	j.seen |= bit
	return true
}

// isEnvelope tells what the object that was just read is.
func (j *judge) isEnvelope() bool { return j.seen&(seenEvents|seenEvent) == seenEvents }

func (j *judge) peek() byte {
	if j.i < len(j.b) {
		return j.b[j.i]
	}
	return 0
}

// name reads the event's name. null and "" are no name.
func (j *judge) name() bool {
	switch j.peek() {
	case '"':
		t, ok := j.str()
		if !ok {
			return false
		}
		v, ok := t.decode(&j.scratch)
		switch {
		case !ok:
			j.blame(CodeBadUTF8, "event")
		case len(v) > event.MaxName:
			j.blame(CodeTooLong, "event")
		case (t.wide || t.escaped || strings.IndexByte(v, 0x7f) >= 0) && hasControl(v):
			j.blame(CodeBadEvent, "event")
		case v != "" && v[0] == '$' && v != "$signin" && v != "$makeup" && v != "$score":
			j.blame(CodeReservedEvent, "event")
		}
		j.Name = v
		return true
	case 'n':
		return j.word("null")
	default:
		j.blame(CodeBadEvent, "event")
		return j.skip()
	}
}

// hasControl looks for control characters: C0, DEL and C1.
func hasControl(s string) bool {
	for _, r := range s {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return true
		}
	}
	return false
}

// label reads a user or an id: a string, or an integer, whose digits are kept as they are. null is none, and so is "" for a user.
func (j *judge) label(bit uint8, field, bad string, limit int) (v string, ok bool) {
	j.once(bit, field)
	switch c := j.peek(); {
	case c == '"':
		t, ok := j.str()
		if !ok {
			return "", false
		}
		if v, ok = t.decode(&j.scratch); !ok {
			j.blame(CodeBadUTF8, field)
		} else if t.escaped && strings.IndexByte(v, 0) >= 0 || v == "" && bit == seenID {
			j.blame(bad, field)
		}
	case c == '-' || c-'0' <= 9:
		lit, integer, ok := j.number()
		if !ok {
			return "", false
		}
		if !integer {
			j.blame(bad, field)
		}
		if v = alias(lit); v == "-0" { // one number, one user
			v = "0"
		}
	case c == 'n':
		return "", j.word("null")
	default:
		j.blame(bad, field)
		return "", j.skip()
	}
	if len(v) > limit {
		j.blame(CodeTooLong, field)
	}
	return v, true
}

// isPlaceholder tells whether a user is what programs write when they have none. Case counts: Null is a name that people have.
func isPlaceholder(user string) bool {
	if c := user[0]; c > ' ' && c < 0x80 && c != 'n' && c != 'u' && c != 'N' && c != '[' {
		return false
	}
	switch strings.TrimSpace(user) {
	case "", "null", "undefined", "None", "NaN", "[object Object]":
		return true
	}
	return false
}

// value reads the number.
func (j *judge) value() bool {
	switch c := j.peek(); {
	case c == '-' || c-'0' <= 9:
		lit, _, ok := j.number()
		if !ok {
			return false
		}
		j.Value = alias(lit)
		if len(lit) > event.MaxValue {
			j.blame(CodeTooLong, "value")
		} else if !finite(j.Value) {
			j.blame(CodeBadValue, "value")
		}
		return true
	case c == 'n':
		return j.word("null")
	default:
		j.blame(CodeBadValue, "value")
		return j.skip()
	}
}

// finite tells whether a JSON number is finite as a float64.
func finite(lit string) bool {
	if len(lit) <= 300 && strings.IndexByte(lit, 'e') < 0 && strings.IndexByte(lit, 'E') < 0 {
		return true
	}
	_, err := strconv.ParseFloat(lit, 64)
	return err == nil
}

// finish judges the event that was just read as a whole, n bytes in the body, and adds or rejects it. ts is what its form calls
// the time.
func (j *judge) finish(n int, ts string) error {
	if err := j.tooMany(); err != nil {
		return err
	}
	f := j.fault
	switch {
	case n > j.limits.MaxEvent:
		f = fault{CodeTooLarge, ""}
	case f.code != "":
	case j.Name == "":
		f = fault{CodeMissingEvent, "event"}
	default:
		if code := j.time(); code != "" {
			f = fault{code, ts}
			break
		}
		if j.User == "" && j.makeUser != nil {
			if j.anonymous == "" {
				j.anonymous = j.makeUser()
			}
			j.User = j.anonymous
		}
		if j.limited != nil && j.limited(j.Name) && j.tooFrequent() {
			f = fault{CodeTooFrequent, ""}
		}
	}
	if f.code != "" {
		id := j.ID
		if f.field == "id" && f.code != CodeTooLong {
			id = ""
		}
		j.reject(id, f.code, f.field)
		return nil
	}
	j.Event.Props = j.object.props
	j.out.Add(&j.Event)
	j.verdict.Received++
	j.verdict.Accepted++
	return nil
}

// tooFrequent lists an event that has a frequency rule, and tells whether that rule has refused it.
func (j *judge) tooFrequent() bool {
	index := j.verdict.Received
	if len(j.refused) > 0 && j.refused[0] == index {
		j.refused = j.refused[1:]
		return true
	}
	j.verdict.Limited = append(j.verdict.Limited, Limited{index, strings.Clone(j.Name), strings.Clone(j.User), strings.Clone(j.ID)})
	return false
}
