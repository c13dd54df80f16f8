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
//	4 bytes    length of the bitmap, little-endian
//	…          roaring bitmap in its portable form; no byte for an empty one
//	4 bytes *  tail: members that came later, little-endian; with the top bit set, one that is no longer a member
//
// New members are appended, so that a member costs 4 bytes to write. When the tail has grown to a quarter of the bitmap, all of it is
// written anew as a bitmap: by then each member of the tail has paid for 16 bytes of it.
const (
	setVersion = 1
	setHeader  = 5
	word       = 4
	minTail    = 256 // bytes of tail that are always fine
	gone       = 1 << 31
)

// decode reads a stored set. The bitmap does not alias the string. Error: projection.ErrDamaged.
func decode(stored string) (b *roaring.Bitmap, base, tail int, err error) {
	damaged := func(what string) (*roaring.Bitmap, int, int, error) {
		return nil, 0, 0, fmt.Errorf("a set of %d bytes: %s: %w", len(stored), what, projection.ErrDamaged)
	}
	if len(stored) < setHeader {
		return damaged("cut short")
	}
	if stored[0] != setVersion {
		return damaged(fmt.Sprintf("version %d", stored[0]))
	}
	size := int64(binary.LittleEndian.Uint32([]byte(stored[1:setHeader])))
	rest := stored[setHeader:]
	if size > int64(len(rest)) || (int64(len(rest))-size)%word != 0 {
		return damaged("cut short")
	}
	b = roaring.New()
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
	return b, int(size), len(rest) - int(size), nil
}

// encode writes a set whole.
func encode(b *roaring.Bitmap) ([]byte, error) {
	if b.IsEmpty() {
		return []byte{setVersion, 0, 0, 0, 0}, nil
	}
	b.RunOptimize()
	size := b.GetSerializedSizeInBytes()
	out := bytes.NewBuffer(make([]byte, 0, setHeader+size))
	out.WriteByte(setVersion)
	out.Write(binary.LittleEndian.AppendUint32(nil, uint32(size)))
	if _, err := b.WriteTo(out); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// encodeTail writes members as they are appended.
func encodeTail(dst []byte, members []uint32) []byte {
	for _, o := range members {
		dst = binary.LittleEndian.AppendUint32(dst, o)
	}
	return dst
}
