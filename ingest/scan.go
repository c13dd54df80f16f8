package ingest

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
	"unsafe"
)

// maxDepth bounds how deep a value may be nested; deeper is malformed.
const maxDepth = 64

// scanner reads JSON (RFC 8259, nothing looser) from b, one value after the other, without allocating. Each method reads at i,
// moves behind what it read and answers false at the first byte that is not JSON; i is then near that byte.
//
// docs/adr/0005-own-json-scanner.md tells why it is not a library.
type scanner struct {
	b    []byte
	i    int
	deep bool // a value was nested deeper than maxDepth
}

// space moves to the next byte that is no white space and returns it, 0 at the end.
func (s *scanner) space() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\n', '\r', '\t':
			s.i++
		default:
			return c
		}
	}
	return 0
}

// eat moves over c, after white space.
func (s *scanner) eat(c byte) bool {
	if s.i < len(s.b) && s.b[s.i] == c || s.space() == c && s.i < len(s.b) {
		s.i++
		return true
	}
	return false
}

// text is a JSON string as it stands in the body, without its quotes.
type text struct {
	raw     []byte
	escaped bool // has escapes
	wide    bool // has bytes over 0x7f, which nobody has looked at
}

// each is a byte of ones in every byte of a word.
const each = 0x0101010101010101

// str reads a string. What its escapes stand for and whether it is UTF-8 is for text.decode to find out.
func (s *scanner) str() (t text, ok bool) {
	b, i := s.b, s.i
	if i >= len(b) || b[i] != '"' {
		return t, false
	}
	i++
	from := i
	for {
		// Eight bytes at a time: over a quote, a backslash, a control character or a byte over 0x7f the top bit is set.
		for i+8 <= len(b) {
			w := binary.LittleEndian.Uint64(b[i:])
			quote, slash := w^'"'*each, w^'\\'*each
			hit := (w | (w - ' '*each) | (quote - each) | (slash - each)) & (0x80 * each)
			if hit != 0 {
				i += bits.TrailingZeros64(hit) / 8
				break
			}
			i += 8
		}
		if i >= len(b) {
			s.i = i
			return t, false
		}
		switch c := b[i]; {
		case c == '"':
			t.raw = b[from:i]
			s.i = i + 1
			return t, true
		case c == '\\':
			n := escape(b[i:])
			if n == 0 {
				s.i = i
				return t, false
			}
			t.escaped = true
			i += n
		case c < ' ':
			s.i = i
			return t, false
		default:
			i++
			for ; c >= 0x80; i++ {
				t.wide = true
				if i >= len(b) || b[i] < 0x80 {
					break
				}
			}
		}
	}
}

// escape is the length of the escape at the start of b, 0 if it is none.
func escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if _, ok := hex4(b); ok {
			return 6
		}
	}
	return 0
}

// hex4 reads \uXXXX at the start of b.
func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// decode returns what t stands for; it aliases the body or, with escapes, what was appended to scratch. It is not ok if that is
// not UTF-8: bad bytes or half a surrogate pair, which Go's decoder would turn into U+FFFD without a word.
func (t text) decode(scratch *[]byte) (v string, ok bool) {
	if t.wide && !utf8.Valid(t.raw) {
		return "", false
	}
	if !t.escaped {
		return alias(t.raw), true
	}
	out := *scratch
	from := len(out)
	for b := t.raw; len(b) > 0; {
		if b[0] != '\\' {
			n := 1
			for n < len(b) && b[n] != '\\' {
				n++
			}
			out = append(out, b[:n]...)
			b = b[n:]
			continue
		}
		switch c := b[1]; c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, _ := hex4(b)
			if r&^0x7ff == 0xd800 {
				low, ok := hex4(b[6:])
				if r >= 0xdc00 || !ok || low&^0x3ff != 0xdc00 {
					return "", false
				}
				r = 0x10000 + (r-0xd800)<<10 + (low - 0xdc00)
				b = b[6:]
			}
			out = utf8.AppendRune(out, r)
			b = b[4:]
		default:
			out = append(out, c)
		}
		b = b[2:]
	}
	*scratch = out
	return alias(out[from:]), true
}

// alias makes a string of bytes that nobody changes while the string is in use.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// number reads a number and tells whether it is written as an integer.
func (s *scanner) number() (lit []byte, integer, ok bool) {
	b, i := s.b, s.i
	if i < len(b) && b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if i, ok = digits(b, i); !ok {
		s.i = i
		return nil, false, false
	}
	integer = true
	if i < len(b) && b[i] == '.' {
		integer = false
		if i, ok = digits(b, i+1); !ok {
			s.i = i
			return nil, false, false
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		integer = false
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if i, ok = digits(b, i); !ok {
			s.i = i
			return nil, false, false
		}
	}
	lit = b[s.i:i]
	s.i = i
	return lit, integer, true
}

// digits moves over one digit or more.
func digits(b []byte, i int) (int, bool) {
	from := i
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i, i > from
}

// word reads true, false or null.
func (s *scanner) word(w string) bool {
	if len(s.b)-s.i < len(w) || string(s.b[s.i:s.i+len(w)]) != w {
		return false
	}
	s.i += len(w)
	return true
}

// skip reads any value, after white space.
func (s *scanner) skip() bool {
	var objects uint64 // one bit for each open level: it is an object
	depth := 0
	for {
		c := s.space()
		switch c {
		case '{', '[':
			s.i++
			if depth++; depth > maxDepth {
				s.deep = true
				return false
			}
			objects <<= 1
			closing := byte(']')
			if c == '{' {
				objects |= 1
				closing = '}'
			}
			if s.space() != closing {
				if c == '{' && !s.key() {
					return false
				}
				continue
			}
			s.i++
			objects >>= 1
			depth--
		case '"':
			if _, ok := s.str(); !ok {
				return false
			}
		default:
			if !s.scalar(c) {
				return false
			}
		}
		// A value is over. What comes next closes levels until one goes on.
		for {
			if depth == 0 {
				return true
			}
			c := s.space()
			if s.i >= len(s.b) {
				return false
			}
			s.i++
			if c == ',' {
				if objects&1 == 1 && !s.key() {
					return false
				}
				break
			}
			if objects&1 == 1 && c != '}' || objects&1 == 0 && c != ']' {
				s.i--
				return false
			}
			objects >>= 1
			depth--
		}
	}
}

// scalar reads a number or a word that begins with c.
func (s *scanner) scalar(c byte) bool {
	switch c {
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	default:
		_, _, ok := s.number()
		return ok
	}
}

// key reads a key and its colon, for skip.
func (s *scanner) key() bool {
	if s.space() != '"' {
		return false
	}
	if _, ok := s.str(); !ok {
		return false
	}
	return s.eat(':')
}
