package ingest

import (
	"bytes"
	"fmt"

	"github.com/rollcall/rollcall/internal/apperr"
)

// The forms of a body, told apart by its bytes alone (a content type is not looked at). A byte order mark in front is skipped.
//
//   - It begins with [ : an array of events.
//   - It is one object, on one line or many: an envelope if it has an array "events" and no "event", else one event.
//   - Several objects: if the first one ends on the line on which it begins, the body is lines (NDJSON). Each line is read alone:
//     it may be blank, end in CR LF, or hold several objects one after the other; a line that is not JSON is one rejection and
//     nothing else. If the first object spans lines, the body is objects one after the other.
//   - The body does not begin with a whole object, but some later line begins with { and none with " ] or } (as the lines of one
//     broken, indented text do), and it does not look like an envelope: lines as well, the first of them broken.
//
// In every form but lines a body that is not JSON throughout is refused as a whole.

var errEmptyBody = apperr.New(apperr.Malformed, CodeEmptyBody, "The body is empty.")

// body judges the events of the whole body.
func (j *judge) body() error {
	if bytes.HasPrefix(j.b, []byte("\xef\xbb\xbf")) {
		j.i = 3
	}
	switch j.space() {
	case '[':
		if err := j.array(); err != nil {
			return err
		}
		return j.end()
	case '{':
	case 0:
		if j.i >= len(j.b) {
			return errEmptyBody
		}
		fallthrough
	default:
		return j.broken(j.i)
	}
	from := j.i
	if !j.readObject() {
		return j.broken(from)
	}
	to := j.i
	j.space()
	last := j.i >= len(j.b)
	switch {
	case j.isEnvelope():
		if !last {
			return j.malformed("nothing may follow the object with the events")
		}
		return j.envelope()
	case last:
		return j.finish(to-from, "ts")
	case bytes.IndexByte(j.b[from:to], '\n') >= 0:
		return j.objects(to - from)
	default:
		j.i = from
		return j.lines()
	}
}

// broken decides about a body that does not begin with a whole object or array.
func (j *judge) broken(from int) error {
	fault := j.i
	rest := j.b[from:]
	lines := false
	for {
		nl := bytes.IndexByte(rest, '\n')
		if nl < 0 {
			break
		}
		rest = rest[nl+1:]
		line := rest
		if end := bytes.IndexByte(rest, '\n'); end >= 0 {
			line = rest[:end]
		}
		switch s := (scanner{b: line}); s.space() {
		case '{':
			lines = lines || s.i == 0
		case '"', ']', '}':
			lines, rest = false, nil
		}
	}
	if !lines || j.isEnvelope() {
		j.i = fault
		return j.malformed("")
	}
	j.i = from
	return j.lines()
}

// malformed refuses the body because of what stands at j.i.
func (j *judge) malformed(why string) error {
	switch {
	case why != "":
	case j.deep:
		why = fmt.Sprintf("a value is nested deeper than %d", maxDepth)
	default:
		why = "it is not valid JSON"
	}
	return apperr.New(apperr.Malformed, CodeBody, "The body cannot be read: %s (byte %d). Nothing was stored.", why, j.i)
}

// end refuses what follows a complete body.
func (j *judge) end() error {
	if j.space(); j.i < len(j.b) {
		return j.malformed("nothing may follow the array")
	}
	return nil
}

// array judges the events of the array at j.i.
func (j *judge) array() error {
	j.i++
	if j.eat(']') {
		return nil
	}
	for {
		if j.space() == '{' {
			if err := j.element(); err != nil {
				return err
			}
		} else {
			if !j.skip() {
				return j.malformed("")
			}
			if err := j.refuse(CodeNotAnObject); err != nil {
				return err
			}
		}
		if j.eat(',') {
			continue
		}
		if j.eat(']') {
			return nil
		}
		return j.malformed("")
	}
}

// element judges the object at j.i as an element of an array.
func (j *judge) element() error {
	if j.segment {
		return j.message("")
	}
	from := j.i
	if !j.readObject() {
		return j.malformed("")
	}
	return j.finish(j.i-from, "ts")
}

// envelope judges the events of the envelope that was just read. sent_at may have stood behind them.
func (j *judge) envelope() error {
	if j.twice {
		return j.malformed("events or sent_at stands there twice")
	}
	if j.sent.bad {
		return apperr.New(apperr.Malformed, CodeBadSentAt, "sent_at cannot be read. %s", details[CodeBadTS]).On("sent_at")
	}
	j.batchSent = j.sent
	j.i = j.events
	return j.array()
}

// objects judges the object that was just read and has n bytes, and those that follow it.
func (j *judge) objects(n int) error {
	for {
		if err := j.finish(n, "ts"); err != nil {
			return err
		}
		c := j.space()
		if j.i >= len(j.b) {
			return nil
		}
		from := j.i
		if c != '{' || !j.readObject() {
			return j.malformed("")
		}
		n = j.i - from
	}
}

// lines judges line after line from j.i on.
func (j *judge) lines() error {
	all := j.b
	for j.i < len(all) {
		next := len(all)
		j.b = all
		if nl := bytes.IndexByte(all[j.i:], '\n'); nl >= 0 {
			next = j.i + nl + 1
			j.b = all[:next-1]
		}
		if err := j.line(); err != nil {
			return err
		}
		j.i = next
	}
	return nil
}

// line judges the objects of one line, which ends where j.b does.
func (j *judge) line() error {
	for more := false; ; more = true {
		c := j.space()
		from := j.i
		if from >= len(j.b) {
			return nil
		}
		if c != '{' {
			if j.skip() && j.blank() {
				return j.refuse(CodeNotAnObject)
			}
			return j.refuse(CodeMalformed)
		}
		if !j.readObject() {
			return j.refuse(CodeMalformed)
		}
		n := j.i - from
		if !more && !j.wholeObjects() { // nothing of a broken line is taken
			return j.refuse(CodeMalformed)
		}
		if err := j.finish(n, "ts"); err != nil {
			return err
		}
	}
}

// blank tells whether only white space follows, and moves over it.
func (j *judge) blank() bool {
	j.space()
	return j.i >= len(j.b)
}

// wholeObjects tells whether what follows is nothing but objects. It does not move.
func (j *judge) wholeObjects() bool {
	s := j.scanner
	for s.space() == '{' {
		if !s.skip() {
			return false
		}
	}
	return s.i >= len(s.b)
}

// refuse rejects something that is no event.
func (j *judge) refuse(code string) error {
	if err := j.tooMany(); err != nil {
		return err
	}
	j.reject("", code, "")
	return nil
}
