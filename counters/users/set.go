package users

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rollcall/rollcall/internal/projection"
)

// A stored set is
//
//	1 byte     version
//	4 bytes    length of the bitmap; this and all that follows is little-endian
//	4 bytes    restated: how many changes came when the day was over, …
//	8 bytes    … and when the last of them was received, unix milliseconds
//	…          roaring bitmap in its portable form; no byte for an empty one
//	4 bytes *  tail: members that came later; with the top bit set, one that is no longer a member
//
// New members are appended, so that a member costs 4 bytes to write. When the tail has grown to a quarter of the bitmap, all of it is
// written anew as a bitmap: by then each member of the tail has paid for 16 bytes of it.
const (
	setVersion = 1
	setHeader  = 17
	restatedAt = 5 // where the fields begin
	word       = 4
	minTail    = 256 // bytes of tail that are always fine
	gone       = 1 << 31
)

// restated tells how a day changed when it was over.
type restated struct {
	changes uint32
	at      int64 // unix milliseconds, when the last one was received
}

func (r *restated) note(received int64) {
	r.changes++
	r.at = max(r.at, received)
}

// decoded is a set as it was stored.
type decoded struct {
	bits *roaring.Bitmap
	restated
	base, tail int // bytes
}

// decode reads a stored set. The bitmap does not alias the string. Error: projection.ErrDamaged.
func decode(stored string) (d decoded, err error) {
	damaged := func(what string) (decoded, error) {
		return decoded{}, fmt.Errorf("a set of %d bytes: %s: %w", len(stored), what, projection.ErrDamaged)
	}
	if len(stored) < setHeader {
		return damaged("cut short")
	}
	if stored[0] != setVersion {
		return damaged(fmt.Sprintf("version %d", stored[0]))
	}
	header, rest := []byte(stored[:setHeader]), stored[setHeader:]
	size := int64(binary.LittleEndian.Uint32(header[1:]))
	d.changes, d.at = binary.LittleEndian.Uint32(header[restatedAt:]), int64(binary.LittleEndian.Uint64(header[restatedAt+4:]))
	if size > int64(len(rest)) || (int64(len(rest))-size)%word != 0 {
		return damaged("cut short")
	}
	b := roaring.New()
	if size > 0 {
		n, err := b.ReadFrom(bytes.NewReader([]byte(rest[:size])))
		if err != nil {
			return damaged(err.Error())
		}
		if n != size {
			return damaged("bytes behind the bitmap")
		}
		if err := b.Validate(); err != nil {
			return damaged(err.Error())
		}
	}
	late := []byte(rest[size:])
	members := make([]uint32, 0, len(late)/word)
	for ; len(late) > 0; late = late[word:] {
		o := binary.LittleEndian.Uint32(late)
		if o&gone == 0 {
			members = append(members, o)
			continue
		}
		b.AddMany(members)
		members = members[:0]
		b.Remove(o &^ gone)
	}
	b.AddMany(members)
	if !b.IsEmpty() && b.Maximum() >= gone {
		return damaged("a member beyond the last ordinal")
	}
	d.bits, d.base, d.tail = b, int(size), len(rest)-int(size)
	return d, nil
}

// encode writes a set whole. An empty bitmap takes no byte.
func encode(b *roaring.Bitmap, r restated) ([]byte, error) {
	size := uint64(0)
	if !b.IsEmpty() {
		b.RunOptimize()
		size = b.GetSerializedSizeInBytes()
	}
	out := bytes.NewBuffer(appendHeader(make([]byte, 0, setHeader+size), size, r))
	if size > 0 {
		if _, err := b.WriteTo(out); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

func appendHeader(dst []byte, size uint64, r restated) []byte {
	dst = binary.LittleEndian.AppendUint32(append(dst, setVersion), uint32(size))
	return r.append(dst)
}

// append writes the fields from restatedAt on.
func (r restated) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, r.changes)
	return binary.LittleEndian.AppendUint64(dst, uint64(r.at))
}

// encodeTail writes members as they are appended.
func encodeTail(dst []byte, members []uint32) []byte {
	for _, o := range members {
		dst = binary.LittleEndian.AppendUint32(dst, o)
	}
	return dst
}
