package ingest

import (
	"bytes"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/event"
)

// The Segment HTTP API, so that existing SDKs work by changing the host: docs/segment.md says what becomes of each member.
//
// What an SDK sends is judged by the same rules as any event, with the same codes; a rejection names Segment's member (userId,
// messageId, timestamp). But no SDK looks at the verdict of one event, so a property never costs its event: what a prop cannot
// hold is cut or left out (segmentprops.go).

// The calls of the Segment API (Request.Call). A batch or an import holds messages that each say their type; in the others the
// body is one message.
const (
	CallTrack    = "track"
	CallPage     = "page"
	CallScreen   = "screen"
	CallIdentify = "identify"
	CallAlias    = "alias"
	CallGroup    = "group"
	CallBatch    = "batch"
	CallImport   = "import"
)

// Calls are all of them.
var Calls = [...]string{CallTrack, CallPage, CallScreen, CallIdentify, CallAlias, CallGroup, CallBatch, CallImport}

// segmentNames are the types of a message and the events that they become; a track names its own.
var segmentNames = map[string]string{
	CallTrack: "", CallPage: "page_view", CallScreen: "screen_view",
	CallIdentify: "identify", CallAlias: "alias", CallGroup: "group",
}

// The members of a message, and of the object around several, that mean something here.
const (
	memberType = iota
	memberEvent
	memberName
	memberCategory
	memberUserID
	memberAnonymousID
	memberMessageID
	memberTimestamp
	memberOriginalTimestamp
	memberSentAt
	memberProperties
	memberBatch
	memberCount
)

// memberNames are their names, in the order of the constants.
var memberNames = [memberCount]string{
	"type", "event", "name", "category", "userId", "anonymousId", "messageId", "timestamp", "originalTimestamp", "sentAt", "properties", "batch",
}

// member is the place of a name among memberNames, -1 if it is none of them.
func member(name string) int {
	for i := range memberNames {
		if memberNames[i] == name {
			return i
		}
	}
	return -1
}

// members are the places in the body where the values of an object's members begin, 0 = it has none. A message is read twice,
// first for them: what a property means depends on the type, which may stand behind it.
type members [memberCount]int

// JudgeSegment is Judge for the body of a call of the Segment API. Its errors of a body are malformed_body, empty_body, bad_sent_at
// and too_many_events.
func JudgeSegment(body []byte, call string, r Rules, b *event.Builder) (Verdict, error) {
	j := newJudge(body, r, b)
	j.segment = true
	return j.close(j.call(call))
}

// call judges the whole body.
func (j *judge) call(call string) error {
	if bytes.HasPrefix(j.b, []byte("\xef\xbb\xbf")) {
		j.i = 3
	}
	if c := j.space(); j.i >= len(j.b) {
		return errEmptyBody
	} else if c != '{' {
		return j.malformed("it is no JSON object")
	}
	if call != CallBatch && call != CallImport {
		if err := j.message(call); err != nil {
			return err
		}
		return j.end()
	}
	at, twice, ok := j.readMembers()
	if !ok {
		return j.malformed("")
	}
	if err := j.end(); err != nil {
		return err
	}
	switch {
	case twice == memberBatch || twice == memberSentAt:
		return j.malformed(memberNames[twice] + " stands there twice")
	case at[memberBatch] == 0 || j.b[at[memberBatch]] != '[':
		return j.malformed("it has no array batch")
	}
	if j.i = at[memberSentAt]; j.i > 0 {
		j.instant(&j.batchSent, "sentAt")
		if j.batchSent.bad {
			return apperr.New(apperr.Malformed, CodeBadSentAt, "sentAt cannot be read. %s Nothing was stored.", details[CodeBadTS]).On("sentAt")
		}
	}
	j.i = at[memberBatch]
	return j.array()
}

// readMembers reads the object at j.i. It answers false if this is not JSON; twice is a member that it has twice, -1 = none.
func (j *judge) readMembers() (at members, twice int, ok bool) {
	twice = -1
	j.i++
	if j.eat('}') {
		return at, twice, true
	}
	for {
		if j.space() != '"' {
			return at, twice, false
		}
		t, ok := j.str()
		if !ok || !j.eat(':') {
			return at, twice, false
		}
		j.space()
		name := alias(t.raw)
		if t.escaped {
			if name, ok = t.decode(&j.scratch); !ok {
				name = "" // none of these
			}
		}
		if m := member(name); m >= 0 {
			if at[m] != 0 {
				twice = m
			}
			at[m] = j.i
		}
		if !j.skip() {
			return at, twice, false
		}
		if j.eat(',') {
			continue
		}
		return at, twice, j.eat('}')
	}
}

// message judges the message at j.i. What it is says its type, unless call does.
func (j *judge) message(call string) error {
	from := j.i
	j.object.clear()
	at, twice, ok := j.readMembers()
	if !ok {
		return j.malformed("")
	}
	to := j.i
	if twice >= 0 && twice != memberBatch {
		j.blame(CodeDuplicateField, memberNames[twice])
	}
	// All of it is JSON, so from here on no read can fail: only rules break.
	if j.i = at[memberMessageID]; j.i > 0 {
		j.ID, _ = j.label(seenID, "messageId", CodeBadID, event.MaxID)
	}
	if to-from <= j.limits.MaxEvent { // else it is refused for that
		if call == "" {
			call = j.messageType(at[memberType])
		}
		j.messageName(call, &at)
		j.messageUser(&at)
		j.messageTimes(&at)
		j.messageProps(call, &at)
	}
	j.i = to
	return j.finish(to-from, "timestamp")
}

// messageType reads the type of a message in a batch.
func (j *judge) messageType(at int) string {
	if j.i = at; at > 0 && j.b[at] == '"' {
		t, _ := j.str()
		if v, ok := t.decode(&j.scratch); ok {
			if _, known := segmentNames[v]; known {
				return v
			}
		}
	}
	j.blame(CodeBadType, "type")
	return ""
}

// messageName settles the event's name.
func (j *judge) messageName(call string, at *members) {
	j.Name = segmentNames[call]
	if j.i = at[memberEvent]; call == CallTrack && j.i > 0 {
		j.name()
	}
}

// messageUser takes userId, else anonymousId. One that is not taken is not judged.
func (j *judge) messageUser(at *members) {
	for _, m := range [...]int{memberUserID, memberAnonymousID} {
		if j.i = at[m]; j.i == 0 {
			continue
		}
		j.User, _ = j.label(0, memberNames[m], CodeBadUser, event.MaxUser)
		if j.User != "" && isPlaceholder(j.User) {
			j.blame(CodePlaceholder, memberNames[m])
		}
		if j.User != "" || j.fault.code != "" {
			return
		}
	}
}

// messageTimes reads when it happened, by the client's clock, and when it was sent.
func (j *judge) messageTimes(at *members) {
	for _, m := range [...]int{memberTimestamp, memberOriginalTimestamp} {
		if j.i = at[m]; j.i > 0 && !j.ts.known && !j.ts.bad {
			j.instant(&j.ts, memberNames[m])
		}
	}
	if j.i = at[memberSentAt]; j.i > 0 {
		j.instant(&j.sent, "sentAt")
	}
}

// segmentKey returns the member writeKey of a body, "" if it has none or is not JSON up to there.
func segmentKey(body []byte) string {
	s := scanner{b: bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))}
	if !s.eat('{') {
		return ""
	}
	for s.space() == '"' {
		name, ok := s.str()
		if !ok || !s.eat(':') {
			return ""
		}
		if s.space() == '"' && string(name.raw) == "writeKey" {
			if key, ok := s.str(); ok && !key.escaped {
				return string(key.raw)
			}
			return ""
		}
		if !s.skip() || !s.eat(',') {
			return ""
		}
	}
	return ""
}
