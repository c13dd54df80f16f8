package event

import "encoding/binary"

// A chunk, all integers varints:
//
//	project (length, bytes) · flags · received, unix ms (zigzag) · events · ids packed as UUID · the events · [rejections (length, bytes)]
//
// A chunk may have no events: then it carries nothing but rejections (see Rejections).
//
// An event:
//
//	flags · name · [user] · [id] · [value] · [props] · [time − received, ms (zigzag)]
//
// name is 0 and the name, which then enters the chunk's table unless that is full, or the 1-based place in the table. user,
// value, props and an id that is no UUID are length and bytes; a UUID is its 16 bytes.
const (
	chunkHistorical = 1 << iota
	chunkNotify
	chunkBot
	chunkRejected // ends with rejections
	chunkFlags    = 1<<iota - 1
)

const (
	hasUser = 1 << iota
	hasID
	isUUID // with hasID
	hasValue
	hasProps
	hasTime    // differs from received
	eventFlags = 1<<iota - 1
)

// maxNames is the size of a chunk's table of names. Further names are written out each time.
const maxNames = 32

// Builder encodes the events of one request into a chunk. The zero value is ready for Reset. It keeps its buffer for the next
// request. Not safe for concurrent use.
type Builder struct {
	buf      []byte // room for the chunk's header, then the events
	room     int
	project  string
	received int64
	flags    byte
	events   int
	packed   int
	names    [maxNames]span
	known    int
	rejected []codeCount
}

// span is a part of Builder.buf.
type span struct{ from, to int }

// Reset begins a new chunk. receivedMs (unix milliseconds), project and historical hold for every event in it; notify says that
// the request waits to hear of its events' fate.
func (b *Builder) Reset(project string, receivedMs int64, historical, notify bool) {
	b.project, b.received = project, receivedMs
	b.flags = 0
	if historical {
		b.flags |= chunkHistorical
	}
	if notify {
		b.flags |= chunkNotify
	}
	b.events, b.packed, b.known = 0, 0, 0
	b.rejected = b.rejected[:0]
	b.room = len(project) + 1 + 4*binary.MaxVarintLen64
	if cap(b.buf) < b.room {
		b.buf = make([]byte, b.room, b.room+1024)
	}
	b.buf = b.buf[:b.room]
}

// MarkBot says that no person sent the request: it holds for every event in it. It is called after Reset.
func (b *Builder) MarkBot() { b.flags |= chunkBot }

// Add encodes e, whose Project, Received and Historical are those given to Reset and are not looked at. e's fields must be within
// the limits of this package. Nothing of e is kept.
func (b *Builder) Add(e *Event) {
	at := len(b.buf)
	buf := append(b.buf, 0)
	flags := byte(0)
	buf = b.appendName(buf, e.Name)
	if e.User != "" {
		flags |= hasUser
		buf = appendString(buf, e.User)
	}
	if e.ID != "" {
		flags |= hasID
		var packed bool
		if buf, packed = AppendUUID(buf, e.ID); packed {
			flags |= isUUID
			b.packed++
		} else {
			buf = appendString(buf, e.ID)
		}
	}
	if e.Value != "" {
		flags |= hasValue
		buf = appendString(buf, e.Value)
	}
	if len(e.Props) > 0 {
		flags |= hasProps
		buf = binary.AppendUvarint(buf, uint64(len(e.Props)))
		buf = append(buf, e.Props...)
	}
	if e.Time != b.received {
		flags |= hasTime
		buf = binary.AppendVarint(buf, e.Time-b.received)
	}
	buf[at] = flags
	b.buf = buf
	b.events++
}

func (b *Builder) appendName(buf []byte, name string) []byte {
	for i, s := range b.names[:b.known] {
		if string(buf[s.from:s.to]) == name {
			return append(buf, byte(i+1))
		}
	}
	buf = appendString(append(buf, 0), name)
	if b.known < maxNames {
		b.names[b.known] = span{len(buf) - len(name), len(buf)}
		b.known++
	}
	return buf
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// Len is the number of events added since Reset.
func (b *Builder) Len() int { return b.events }

// Size is about the number of bytes that Bytes returns, without rejections; it may be up to 40 too many.
func (b *Builder) Size() int { return len(b.buf) }

// Bytes returns the chunk. It is the builder's own buffer, valid until the next Add or Reset. The zero Builder has no chunk: nil.
func (b *Builder) Bytes() []byte {
	if b.room == 0 {
		return nil
	}
	head := make([]byte, 0, 32+1+4*binary.MaxVarintLen64)
	head = appendString(head, b.project)
	flags := b.flags
	if len(b.rejected) > 0 {
		flags |= chunkRejected
	}
	head = append(head, flags)
	head = binary.AppendVarint(head, b.received)
	head = binary.AppendUvarint(head, uint64(b.events))
	head = binary.AppendUvarint(head, uint64(b.packed))
	from := b.room - len(head)
	copy(b.buf[from:], head)
	if len(b.rejected) > 0 {
		return b.appendRejected(b.buf[from:])
	}
	return b.buf[from:]
}
