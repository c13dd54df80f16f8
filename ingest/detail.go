package ingest

import (
	"fmt"
	"strings"
)

// details are the sentences of the codes whose sentence is always the same.
var details = map[string]string{
	CodeMalformed:      "The line is not JSON, or nests a value deeper than 64.",
	CodeNotAnObject:    "An event is a JSON object.",
	CodeDuplicateField: "The field stands there twice.",
	CodeBadUTF8:        "The field is not valid UTF-8, or has half a surrogate pair.",
	CodeBadType:        "type is track, page, screen, identify, alias or group.",
	CodeMissingEvent:   "event is required.",
	CodeBadEvent:       "event is a string without control characters.",
	CodeReservedEvent:  "Names that begin with $ are reserved; known are $signin, $makeup and $score.",
	CodeBadUser:        "user is a string or an integer, without NUL.",
	CodePlaceholder:    "user is a placeholder; leave it out if there is none.",
	CodeBadID:          "id is a string or an integer of 1 to 128 bytes, without NUL.",
	CodeBadTS:          "The time is RFC 3339 with an offset, or a unix time in s, ms, µs or ns.",
	CodeTooOld:         "ts is before 1971-01-01.",
	CodeInFuture:       "ts is more than 10 minutes ahead of the server's clock.",
	CodeBadValue:       "value is a finite JSON number.",
	CodeBadProps:       "props is an object of strings, finite numbers and booleans; keys have 1 to 64 bytes and no control characters.",
	CodeTooFrequent:    "This user has sent this event as often as the project allows for now (frequency rule); send it later.",
	CodeTooManyProps:   "An event has at most 32 props.",
	CodeNestedProp:     "A prop is a string, a number or a boolean, not an object or an array.",
}

// tooLong are the sentences of too_long by field.
var tooLong = map[string]string{
	"event": "event is over its limit of 64 bytes.",
	"user":  "user is over its limit of 256 bytes.",
	"id":    "id is over its limit of 128 bytes.",
	"value": "value is over its limit of 64 bytes.",

	"userId":      "userId is over its limit of 256 bytes.",
	"anonymousId": "anonymousId is over its limit of 256 bytes.",
	"messageId":   "messageId is over its limit of 128 bytes.",
}

// detail makes the sentence of a rejection. It allocates at most once for a request.
func (j *judge) detail(code, field string) string {
	switch code {
	case CodeTooLong:
		if d, ok := tooLong[field]; ok {
			return d
		}
		return "A prop's key is over its limit of 64 bytes, or its value over 1024."
	case CodeTooLarge:
		if j.limits.MaxEvent == 64<<10 {
			return "The event is over the limit of 65536 bytes."
		}
		return fmt.Sprintf("The event is over the limit of %d bytes.", j.limits.MaxEvent)
	case CodeTooLate:
		if j.lateDetail == "" {
			j.lateDetail = fmt.Sprintf("ts is older than the late window of %s (option %s).", span(j.late), optionLate)
		}
		return j.lateDetail
	}
	return details[code]
}

// span is a duration in words: 7 days, 36 hours, 90 seconds.
func span(ms int64) string {
	for _, u := range []struct {
		ms   int64
		name string
	}{{86_400_000, "days"}, {3_600_000, "hours"}, {60_000, "minutes"}, {1000, "seconds"}} {
		if ms >= u.ms && ms%u.ms == 0 {
			return fmt.Sprintf("%d %s", ms/u.ms, u.name)
		}
	}
	return fmt.Sprintf("%d ms", ms)
}

// clip returns a copy of s, cut to at most n bytes between two characters.
func clip(s string, n int) string {
	return strings.Clone(cut(s, n))
}
