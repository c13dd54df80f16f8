package event

import "encoding/binary"

// UUIDText is the length of a UUID in its canonical form: 36 lower-case characters, which most ids are. They take 16 bytes in a chunk; any
// other spelling is another id and stays text.
const UUIDText = 36

// unhex is the value of a lower-case hex digit, 0xff for anything else.
var unhex = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	for i, c := range []byte("0123456789abcdef") {
		t[c] = byte(i)
	}
	return t
}()

// uuidPairs is where each byte's two digits stand in the text.
var uuidPairs = [16]uint8{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34}

// AppendUUID appends the 16 bytes of s if it is a canonical UUID.
func AppendUUID(dst []byte, s string) ([]byte, bool) {
	if len(s) != UUIDText || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return dst, false
	}
	var u [16]byte
	var all byte
	for i, at := range uuidPairs {
		hi, lo := unhex[s[at]], unhex[s[at+1]]
		all |= hi | lo
		u[i] = hi<<4 | lo
	}
	if all > 15 {
		return dst, false
	}
	return append(dst, u[:]...), true
}

// PutUUID writes the text of the 16 bytes u into the 36 bytes dst.
func PutUUID(dst, u []byte) {
	_, _ = dst[UUIDText-1], u[15]
	le := binary.LittleEndian
	b, c := hex8(le.Uint32(u[4:])), hex8(le.Uint32(u[8:]))
	le.PutUint64(dst, hex8(le.Uint32(u)))
	le.PutUint32(dst[9:], uint32(b))
	le.PutUint32(dst[14:], uint32(b>>32))
	le.PutUint32(dst[19:], uint32(c))
	le.PutUint32(dst[24:], uint32(c>>32))
	le.PutUint64(dst[28:], hex8(le.Uint32(u[12:])))
	dst[8], dst[13], dst[18], dst[23] = '-', '-', '-', '-'
}

// hex8 is the eight lower-case hex digits of four bytes, all little-endian, without a branch or a table.
func hex8(x uint32) uint64 {
	const each = 0x0101010101010101
	v := uint64(x)
	v = (v | v<<16) & 0x0000ffff0000ffff
	v = (v | v<<8) & 0x00ff00ff00ff00ff
	v = v>>4&0x000f000f000f000f | v&0x000f000f000f000f<<8
	letters := (v + 6*each) >> 4 & each
	return v + '0'*each + letters*('a'-'0'-10)
}
