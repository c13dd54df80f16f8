package event

import (
	"encoding/binary"
	"unsafe"
)

// reader walks over encoded bytes. After a fault it is bad and answers zero values, so callers look once, at the end.
type reader struct {
	b   []byte
	at  int
	bad bool
}

func (r *reader) byte() byte {
	if r.at >= len(r.b) {
		r.bad = true
		return 0
	}
	c := r.b[r.at]
	r.at++
	return c
}

// uvarint reads a length or a count; one that was not written in its shortest form is read all the same.
func (r *reader) uvarint() uint64 {
	if at := r.at; at < len(r.b) {
		if c := r.b[at]; c < 0x80 {
			r.at = at + 1
			return uint64(c)
		}
	}
	return r.longUvarint()
}

//go:noinline
func (r *reader) longUvarint() uint64 { // kept out of uvarint so that that is inlined
	v, n := binary.Uvarint(r.b[min(r.at, len(r.b)):])
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.at += n
	return v
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// take returns the next n bytes, with their capacity cut so that an append cannot reach what follows.
func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.b)-r.at) {
		r.bad = true
		return nil
	}
	end := r.at + int(n)
	b := r.b[r.at:end:end]
	r.at = end
	return b
}

func (r *reader) skip(n uint64) {
	if n > uint64(len(r.b)-r.at) {
		r.bad = true
		return
	}
	r.at += int(n)
}

// str reads a string that aliases the buffer.
func (r *reader) str() string {
	b := r.take(r.uvarint())
	return unsafe.String(unsafe.SliceData(b), len(b))
}
