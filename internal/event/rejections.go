package event

import (
	"encoding/binary"
	"iter"
)

// Limits of Rejections.
const (
	MaxCodes    = 32      // codes of one chunk
	MaxCode     = 32      // bytes of a code
	MaxRejected = 1 << 32 // events of one code
)

// OtherCode stands for the codes of a chunk beyond MaxCodes.
const OtherCode = "other"

// Rejections say how many events of a request were refused, by code, encoded: for each code its length, its bytes (a-z, 0-9 and _) and
// how many events. Those events are not in the journal; their number is, so that what a client sent can be accounted for. nil = none.
type Rejections []byte

// All goes over the codes. The strings alias r.
func (r Rejections) All() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for at := (reader{b: r}); at.at < len(at.b); {
			code, n := at.str(), at.uvarint()
			if at.bad || !yield(code, int64(n)) {
				return
			}
		}
	}
}

// Total is the number of events.
func (r Rejections) Total() (total int64) {
	for _, n := range r.All() {
		total += n
	}
	return total
}

// valid tells whether r is a sequence of whole codes within the limits.
func (r Rejections) valid() bool {
	codes := 0
	for at := (reader{b: r}); at.at < len(at.b); codes++ {
		code, n := at.str(), at.uvarint()
		if at.bad || codes == MaxCodes || !validCode(code) || n == 0 || n > MaxRejected {
			return false
		}
	}
	return true
}

func validCode(code string) bool {
	for i := range len(code) {
		if c := code[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return code != "" && len(code) <= MaxCode
}

// codeCount is a code in a Builder.
type codeCount struct {
	code string
	n    uint64
}

// Reject counts n events of the request that were refused for a code. It is called after Reset. What is beyond the limits of Rejections is
// counted as OtherCode, up to MaxRejected.
func (b *Builder) Reject(code string, n int) {
	if n <= 0 {
		return
	}
	for i := range b.rejected {
		if c := &b.rejected[i]; c.code == code {
			c.n = min(c.n+uint64(n), MaxRejected)
			return
		}
	}
	if code != OtherCode && (!validCode(code) || len(b.rejected) >= MaxCodes-1) {
		b.Reject(OtherCode, n)
		return
	}
	b.rejected = append(b.rejected, codeCount{code, min(uint64(n), MaxRejected)})
}

// appendRejected appends the chunk's end: the rejections behind their length.
func (b *Builder) appendRejected(dst []byte) []byte {
	size := 0
	for _, c := range b.rejected {
		size += uvarintSize(uint64(len(c.code))) + len(c.code) + uvarintSize(c.n)
	}
	dst = binary.AppendUvarint(dst, uint64(size))
	for _, c := range b.rejected {
		dst = binary.AppendUvarint(appendString(dst, c.code), c.n)
	}
	return dst
}

func uvarintSize(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}
