package event

import (
	"encoding/binary"
	"strings"
	"unsafe"
)

// A chunk is the events of one request:
//
//	flags byte, project, uvarint received (ms), uvarint count, events
//
// and each event:
//
//	flags byte, name, zigzag of received - time (ms), then as flagged: user, id, value, props
//
// A name is uvarint 0 and the string when it comes for the first time in the chunk, else its place among the names so far, from 1.
// A user, id or value is its length and its bytes; props are the length of their encoded form and that form.
const (
	chunkHistorical = 1 << 0
	chunkNotify     = 1 << 1

	eventUser  = 1 << 0
	eventID    = 1 << 1
	eventValue = 1 << 2
	eventProps = 1 << 3

	maxProject = 32
	maxEvents  = 1 << 19 // events of a record: bounds what a crafted one can make Decode allocate, 64 MiB
	maxNames   = 1 << 16 // names a chunk interns; those beyond stand in full
	maxProps   = MaxProps * (1 + 2 + MaxPropKey + 2 + MaxPropValue)
)

// Builder encodes the events of one request. The zero value is ready after Reset.
type Builder struct {
	head     []byte
	body     []byte
	out      []byte
	count    int
	received int64
	refs     map[string]uint64 // place of a name among names, from 1
	names    []string
	last     uint64 // ref of the name that came last
}

// Reset begins a chunk of a project's events that were received at a time (unix ms); historical if an admin imported them, notify if
// the caller waits for them to be applied.
func (b *Builder) Reset(project string, received int64, historical, notify bool) {
	var flags byte
	if historical {
		flags |= chunkHistorical
	}
	if notify {
		flags |= chunkNotify
	}
	b.head = append(b.head[:0], flags)
	b.head = appendString(b.head, project)
	b.head = binary.AppendUvarint(b.head, uint64(received))
	b.body = b.body[:0]
	b.count, b.received = 0, received
	b.names, b.last = b.names[:0], 0
	if b.refs == nil {
		b.refs = make(map[string]uint64)
	}
	clear(b.refs)
}

// Add encodes one event; its Project, Received and Historical are the chunk's. Nothing of e is kept.
func (b *Builder) Add(e *Event) {
	var flags byte
	if e.User != "" {
		flags |= eventUser
	}
	if e.ID != "" {
		flags |= eventID
	}
	if e.Value != "" {
		flags |= eventValue
	}
	if len(e.Props) > 0 {
		flags |= eventProps
	}
	d := append(b.body, flags)
	d = b.appendName(d, e.Name)
	d = binary.AppendVarint(d, b.received-e.Time)
	if e.User != "" {
		d = appendString(d, e.User)
	}
	if e.ID != "" {
		d = appendString(d, e.ID)
	}
	if e.Value != "" {
		d = appendString(d, e.Value)
	}
	if len(e.Props) > 0 {
		d = binary.AppendUvarint(d, uint64(len(e.Props)))
		d = append(d, e.Props...)
	}
	b.body = d
	b.count++
}

func (b *Builder) appendName(d []byte, name string) []byte {
	if b.last != 0 && b.names[b.last-1] == name {
		return binary.AppendUvarint(d, b.last)
	}
	if ref, ok := b.refs[name]; ok {
		b.last = ref
		return binary.AppendUvarint(d, ref)
	}
	if len(b.names) < maxNames {
		name = strings.Clone(name) // the caller's may alias a buffer that is used again
		b.names = append(b.names, name)
		b.last = uint64(len(b.names))
		b.refs[name] = b.last
	}
	return appendString(append(d, 0), name)
}

// Len is the number of events added.
func (b *Builder) Len() int { return b.count }

// Size is the number of bytes the chunk has so far.
func (b *Builder) Size() int { return len(b.head) + binary.MaxVarintLen32 + len(b.body) }

// Bytes returns the chunk. It is valid until the next Reset or Add.
func (b *Builder) Bytes() []byte {
	b.out = append(b.out[:0], b.head...)
	b.out = binary.AppendUvarint(b.out, uint64(b.count))
	b.out = append(b.out, b.body...)
	return b.out
}

// decodeChunk appends the events of the chunk at the head of data and returns what follows it.
func (r *Record) decodeChunk(data []byte) ([]byte, bool) {
	if len(data) == 0 || data[0]&^(chunkHistorical|chunkNotify) != 0 {
		return nil, false
	}
	flags := data[0]
	project, data, ok := cutString(data[1:], maxProject)
	if !ok {
		return nil, false
	}
	received, w := uvarint(data)
	if w <= 0 || received > 1<<53 {
		return nil, false
	}
	data = data[w:]
	count, w := uvarint(data)
	if w <= 0 || count > uint64(len(data)) || uint64(len(r.Events))+count > maxEvents {
		return nil, false
	}
	data = data[w:]
	r.Chunks = append(r.Chunks, ChunkInfo{First: len(r.Events), Count: int(count), Notify: flags&chunkNotify != 0})
	r.names = r.names[:0]
	for range count {
		r.Events = append(r.Events, Event{Project: project, Received: int64(received), Historical: flags&chunkHistorical != 0})
		if data, ok = r.decodeEvent(&r.Events[len(r.Events)-1], data); !ok {
			return nil, false
		}
	}
	return data, true
}

func (r *Record) decodeEvent(e *Event, data []byte) (rest []byte, ok bool) {
	if len(data) == 0 || data[0]&^(eventUser|eventID|eventValue|eventProps) != 0 {
		return nil, false
	}
	flags := data[0]
	ref, w := uvarint(data[1:])
	if w <= 0 {
		return nil, false
	}
	data = data[1+w:]
	if ref == 0 {
		if e.Name, data, ok = cutString(data, MaxName); !ok {
			return nil, false
		}
		if len(r.names) < maxNames {
			r.names = append(r.names, e.Name)
		}
	} else {
		if ref > uint64(len(r.names)) {
			return nil, false
		}
		e.Name = r.names[ref-1]
	}
	ago, w := binary.Varint(data)
	if w <= 0 {
		return nil, false
	}
	e.Time = e.Received - ago
	data = data[w:]
	if flags&eventUser != 0 {
		if e.User, data, ok = cutString(data, MaxUser); !ok || e.User == "" {
			return nil, false
		}
	}
	if flags&eventID != 0 {
		if e.ID, data, ok = cutString(data, MaxID); !ok || e.ID == "" {
			return nil, false
		}
	}
	if flags&eventValue != 0 {
		if e.Value, data, ok = cutString(data, MaxValue); !ok || e.Value == "" {
			return nil, false
		}
	}
	if flags&eventProps != 0 {
		var props string
		if props, data, ok = cutString(data, maxProps); !ok || props == "" {
			return nil, false
		}
		e.Props = unsafe.Slice(unsafe.StringData(props), len(props))
		for b := []byte(e.Props); len(b) > 0; {
			if _, b, ok = cutProp(b); !ok {
				return nil, false
			}
		}
	}
	return data, true
}

// alias makes a string of bytes that are never changed again.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
