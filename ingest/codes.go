package ingest

// The codes of Rejection: why one event was not taken. They are stable; clients switch on them.
const (
	CodeMalformed      = "malformed"        // a line that is not JSON
	CodeNotAnObject    = "not_an_object"    // JSON, but no object: a number, a string, an array, null
	CodeTooLarge       = "too_large"        // the whole event has more bytes than Limits.MaxEvent
	CodeDuplicateField = "duplicate_field"  // a field, or a prop, stands there twice: which one is meant cannot be known
	CodeBadUTF8        = "bad_utf8"         // bytes that are not UTF-8, or half a surrogate pair (\ud83d)
	CodeTooLong        = "too_long"         // a field has more bytes than its limit
	CodeBadType        = "bad_type"         // type, in a batch of the Segment API, is none of track, page, screen, identify, alias, group
	CodeMissingEvent   = "missing_event"    // no event, null or ""
	CodeBadEvent       = "bad_event"        // event is no string, or has control characters
	CodeReservedEvent  = "reserved_event"   // event begins with $ and is none of $signin, $makeup, $score
	CodeBadUser        = "bad_user"         // user is neither a string nor an integer, or has a NUL
	CodePlaceholder    = "placeholder_user" // user is blank, or what programs write when they have none
	CodeBadID          = "bad_id"           // id is neither a string nor an integer, is "", or has a NUL
	CodeBadTS          = "bad_ts"           // ts (or sent_at) is neither RFC 3339 with an offset nor a number
	CodeTooLate        = "too_late"         // ts is older than the project's late window
	CodeTooOld         = "too_old"          // ts is before 1971-01-01, which no import may be either
	CodeInFuture       = "in_future"        // ts is more than 10 minutes ahead
	CodeBadValue       = "bad_value"        // value is not a number that a float64 can hold
	CodeBadProps       = "bad_props"        // props is no object, a key is empty or has control characters, a number is not finite
	CodeTooManyProps   = "too_many_props"   // more than 32 props
	CodeTooFrequent    = "too_frequent"     // the user has sent this event as often as the project's frequency rule allows
	CodeNestedProp     = "nested_prop"      // a prop is an object or an array
)

// The codes of errors of a whole request: nothing of it was stored.
const (
	CodeBody         = "malformed_body"       // 400: the body is not JSON
	CodeEmptyBody    = "empty_body"           // 400
	CodeBadSentAt    = "bad_sent_at"          // 400: sent_at beside a batch cannot be read
	CodeBadEncoding  = "bad_encoding"         // 400: the body is not what Content-Encoding says
	CodeUnreadable   = "unreadable_body"      // 400: the connection broke off
	CodeEncoding     = "unsupported_encoding" // 415
	CodeBodyTooLarge = "body_too_large"       // 413
	CodeBusy         = "too_many_bodies"      // 503: see largeBodies
	CodeQuery        = "malformed_query"      // 400: the query of a pixel
	CodeTooMany      = "too_many_events"      // 413
)

// The options that change a limit, as clients are told.
const (
	optionMaxBody   = "limits.max_body"
	optionMaxEvents = "limits.max_events"
	optionLate      = "late_window"
)
