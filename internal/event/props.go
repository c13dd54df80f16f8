package event

import (
	"encoding/binary"
	"iter"
)

// Props are the props of one event in encoded form: for each a kind byte, the key and the value, both behind their length. nil = none.
type Props []byte

// Append adds a prop. The caller keeps to the limits.
func (p *Props) Append(key string, kind Kind, value string) {
	b := append(*p, byte(kind))
	b = appendString(b, key)
	*p = appendString(b, value)
}

// All yields the props in the order they were added. It ends at the first damaged one, which can't happen in a record that passed
// Decode.
func (p Props) All() iter.Seq[Prop] {
	return func(yield func(Prop) bool) {
		for b := []byte(p); len(b) > 0; {
			prop, rest, ok := cutProp(b)
			if !ok || !yield(prop) {
				return
			}
			b = rest
		}
	}
}

// Get returns the prop with the key.
func (p Props) Get(key string) (Prop, bool) {
	for prop := range p.All() {
		if prop.Key == key {
			return prop, true
		}
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

func cutProp(b []byte) (prop Prop, rest []byte, ok bool) {
	if len(b) == 0 {
		return prop, nil, false
	}
	prop.Kind = Kind(b[0])
	switch prop.Kind {
	case String, Number, True, False:
	default:
		return prop, nil, false
	}
	if prop.Key, b, ok = cutString(b[1:], MaxPropKey); !ok {
		return prop, nil, false
	}
	prop.Value, b, ok = cutString(b, MaxPropValue)
	return prop, b, ok
}

func appendString(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// cutString returns the string at the head of b, which aliases b.
func cutString(b []byte, limit int) (s string, rest []byte, ok bool) {
	n, w := uvarint(b)
	if w <= 0 || n > uint64(limit) || uint64(len(b)-w) < n {
		return "", nil, false
	}
	return alias(b[w : w+int(n)]), b[w+int(n):], true
}

// uvarint is binary.Uvarint with the one-byte case in line.
func uvarint(b []byte) (uint64, int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return binary.Uvarint(b)
}
