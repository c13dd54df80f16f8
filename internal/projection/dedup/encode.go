package dedup

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// Layout of the store. Numbers in keys are big-endian.
//
//	i <day u32> <group u16> -> the ids of a day whose key begins with the group's bits, in the order they came; each is
//	                           its key (16 B), uvarint seq, index, received - start of day (ms): its first position
//	v <seq u64>             -> uvarint indices, each as the distance to the one before; a zero byte = the whole record
//	o                       -> u64: every record up to it has been judged
//	m                       -> version byte, seed u64, journal identity

var errDamaged = errors.New("dedup: damaged ids")

func (k key) group() int { return int(k.hi >> (64 - groupBits)) }

func appendGroupKey(dst []byte, day int64, group int) []byte {
	dst = append(dst, 'i')
	dst = binary.BigEndian.AppendUint32(dst, uint32(day))
	return binary.BigEndian.AppendUint16(dst, uint16(group))
}

func appendEntry(dst []byte, e *entry, day int64) []byte {
	dst = binary.BigEndian.AppendUint64(dst, e.key.hi)
	dst = binary.BigEndian.AppendUint64(dst, e.key.lo)
	dst = binary.AppendUvarint(dst, e.pos.seq)
	dst = binary.AppendUvarint(dst, uint64(e.pos.index))
	return binary.AppendUvarint(dst, uint64(max(e.pos.received-day*dayMillis, 0)))
}

// cutEntry reads the entry at the head of b and returns what follows it.
func cutEntry(b []byte, day int64) (e entry, rest []byte, ok bool) {
	if len(b) < 19 {
		return e, nil, false
	}
	e.key = key{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
	b = b[16:]
	var nums [3]uint64
	for i := range nums {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return e, nil, false
		}
		nums[i], b = v, b[n:]
	}
	e.pos = position{nums[0], uint32(nums[1]), day*dayMillis + int64(nums[2])}
	return e, b, true
}

func (d Duplicates) append(dst []byte) []byte {
	if d.Record {
		return append(dst, 0)
	}
	last := -1
	for _, i := range d.Events {
		dst = binary.AppendUvarint(dst, uint64(i-last))
		last = i
	}
	return dst
}

func decodeDuplicates(b []byte) (Duplicates, bool) {
	if bytes.Equal(b, []byte{0}) {
		return Duplicates{Record: true}, true
	}
	var d Duplicates
	last := -1
	for len(b) > 0 {
		v, n := binary.Uvarint(b)
		if n <= 0 || v == 0 || v > 1<<31 {
			return Duplicates{}, false
		}
		last += int(v)
		d.Events = append(d.Events, last)
		b = b[n:]
	}
	return d, true
}
