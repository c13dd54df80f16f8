// Package event is the judged event and its form inside the journal.
//
// An Event is what ingest accepted: every field has passed its rule (see package ingest). A chunk is the events of one
// request, encoded by a Builder; a record is what one journal message holds: one or more chunks, compressed and sealed with
// a checksum. The encoding is versioned; what this package wrote once it reads for ever.
package event

// MaxProps and the other limits bound one event; ingest enforces them, the codec relies on them.
const (
	MaxName      = 64   // bytes of an event name
	MaxUser      = 256  // bytes of a user
	MaxID        = 128  // bytes of an event id
	MaxValue     = 64   // bytes of a number literal
	MaxProps     = 32   // props of one event
	MaxPropKey   = 64   // bytes of a prop's key
	MaxPropValue = 1024 // bytes of a prop's value
)

// Event is one judged event. Strings decoded from a record alias that record's buffer, which is never reused: they are safe
// to keep, but each keeps the whole record alive, so what is kept for long is cloned.
type Event struct {
	Project    string // [a-z0-9-]{1,32}
	Name       string // 1–64 bytes of UTF-8
	User       string // "" = absent: counts for PV, for no UV
	ID         string // "" = absent
	Value      string // a JSON number literal, finite as float64; "" = absent, which is not 0
	Time       int64  // unix milliseconds
	Received   int64  // unix milliseconds, when ingest took the request
	Historical bool   // imported with an admin key
	Bot        bool   // sent by no person: it counts for no PV and no UV
	Props      Props

	// Of the user inside the project, filled by package internal/ordinal on the way to the projections; meaningless without User and for a
	// Bot.
	UserShard int32
	Ordinal   uint32
	First     bool // there was no event of the user before, of any name
}

// Kind is the type of a prop's value.
type Kind byte

// The kinds of prop. A null prop is not kept.
const (
	String Kind = 's'
	Number Kind = 'n' // Value is the literal as sent
	True   Kind = 't'
	False  Kind = 'f'
)

// Prop is one key with a scalar value.
type Prop struct {
	Key   string
	Kind  Kind
	Value string // "" for True and False
}
