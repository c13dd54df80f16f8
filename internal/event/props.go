package event

import (
	"encoding/binary"
	"iter"
)

// Props are the props of one event, encoded: for each its key (length, bytes), its kind (one byte) and, unless it is True or
// False, its value (length, bytes). nil = none. The bytes carry their keys themselves, so they can be kept, compared and copied
// without the record they came from; that the keys repeat costs little after compression.
type Props []byte

// Append adds one prop. It does not look whether the key is there already.
func (p *Props) Append(key string, kind Kind, value string) {
	b := binary.AppendUvarint(*p, uint64(len(key)))
	b = append(b, key...)
	b = append(b, byte(kind))
	if kind == String || kind == Number {
		b = binary.AppendUvarint(b, uint64(len(value)))
		b = append(b, value...)
	}
	*p = b
}

// All goes over the props in the order in which they were added. The strings alias p.
func (p Props) All() iter.Seq[Prop] {
	return func(yield func(Prop) bool) {
		for b := []byte(p); len(b) > 0; {
			prop, n := nextProp(b)
			if n == 0 || !yield(prop) {
				return
			}
			b = b[n:]
		}
	}
}

// Get returns the prop with the key.
func (p Props) Get(key string) (Prop, bool) {
	for b := []byte(p); len(b) > 0; {
		prop, n := nextProp(b)
		if n == 0 {
			break
		}
		if prop.Key == key {
			return prop, true
		}
		b = b[n:]
	}
	return Prop{}, false
}

// Len is the number of props.
func (p Props) Len() int {
	n := 0
	for range p.All() {
		n++
	}
	return n
}

// valid tells whether p is a sequence of whole props.
func (p Props) valid() bool {
	r := reader{b: p}
	for r.at < len(r.b) && !r.bad {
		r.skip(r.uvarint())
		switch Kind(r.byte()) {
		case String, Number:
			r.skip(r.uvarint())
		case True, False:
		default:
			return false
		}
	}
	return !r.bad
}

// nextProp decodes the prop at the start of b and tells its length in bytes, 0 if it is damaged.
func nextProp(b []byte) (p Prop, n int) {
	r := reader{b: b}
	p.Key = r.str()
	p.Kind = Kind(r.byte())
	switch p.Kind {
	case String, Number:
		p.Value = r.str()
	case True, False:
	default:
		return Prop{}, 0
	}
	if r.bad {
		return Prop{}, 0
	}
	return p, r.at
}
