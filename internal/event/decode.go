package event

import "unsafe"

type chunkHeader struct {
	project        string
	flags          byte
	received       int64
	events, packed uint64
}

func (r *reader) chunkHeader() chunkHeader {
	return chunkHeader{project: r.str(), flags: r.byte(), received: r.varint(), events: r.uvarint(), packed: r.uvarint()}
}

// decode reads the chunks that open has counted.
func (d *decoder) decode() bool {
	project := ""
	for d.body.at < len(d.body.b) {
		c := reader{b: d.body.take(d.body.uvarint())}
		h := c.chunkHeader()
		if h.flags&^chunkFlags != 0 {
			return false
		}
		if h.project == project {
			h.project = project // the same string, so that comparing is cheap
		}
		project = h.project
		if !d.chunk(&c, &h) {
			return false
		}
	}
	return len(d.texts) == 0
}

func (d *decoder) chunk(c *reader, h *chunkHeader) bool {
	r := d.rec
	first, count := len(r.Events), int(h.events)
	r.Chunks = append(r.Chunks, ChunkInfo{
		First: first, Count: count, Notify: h.flags&chunkNotify != 0, Bot: h.flags&chunkBot != 0,
		Project: h.project, Received: h.received,
	})
	r.Events = r.Events[:first+count]
	var table [maxNames]string
	known := 0
	for i := range r.Events[first:] {
		e := &r.Events[first+i]
		flags := c.byte()
		if flags&^eventFlags != 0 || flags&(hasID|isUUID) == isUUID {
			return false
		}
		e.Project, e.Received = h.project, h.received
		e.Historical, e.Bot = h.flags&chunkHistorical != 0, h.flags&chunkBot != 0
		switch n := c.uvarint(); {
		case n == 0:
			e.Name = d.intern(c.str())
			if known < maxNames {
				table[known] = e.Name
				known++
			}
		case n <= uint64(known):
			e.Name = table[n-1]
		default:
			return false
		}
		if flags&hasUser != 0 {
			e.User = c.str()
		}
		if flags&isUUID != 0 {
			if e.ID = d.uuid(c.take(16)); e.ID == "" {
				return false
			}
		} else if flags&hasID != 0 {
			e.ID = c.str()
		}
		if flags&hasValue != 0 {
			e.Value = c.str()
		}
		if flags&hasProps != 0 {
			if e.Props = c.take(c.uvarint()); !e.Props.valid() {
				return false
			}
		}
		e.Time = h.received
		if flags&hasTime != 0 {
			e.Time += c.varint()
		}
		if c.bad {
			return false
		}
	}
	if h.flags&chunkRejected != 0 {
		rejected := Rejections(c.take(c.uvarint()))
		if c.bad || len(rejected) == 0 || !rejected.valid() {
			return false
		}
		r.Chunks[len(r.Chunks)-1].Rejected = rejected
	}
	return !c.bad && c.at == len(c.b)
}

// intern returns the record's one string for a name.
func (d *decoder) intern(name string) string {
	for _, s := range d.names[:d.known] {
		if s == name {
			return s
		}
	}
	if d.known < maxNames {
		d.names[d.known] = name
		d.known++
	}
	return name
}

// uuid returns the text of a packed id, "" if there is no room counted for it.
func (d *decoder) uuid(u []byte) string {
	if len(u) != 16 || len(d.texts) < UUIDText {
		return ""
	}
	PutUUID(d.texts, u)
	s := unsafe.String(&d.texts[0], UUIDText)
	d.texts = d.texts[UUIDText:]
	return s
}
