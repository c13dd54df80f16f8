package counters

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"unsafe"
)

// A HyperLogLog as Redis keeps it (hyperloglog.c, the same in every version since 2.8.9): 2^14 registers; a user's hash picks the register
// by its low 14 bits, and the register holds the longest run of zeros, plus one, that began the remaining 50 bits of any user's hash.
const (
	hllBits      = 14
	hllRegisters = 1 << hllBits
	hllSeed      = 0xadc83b19
	hllHeader    = 16 // "HYLL", encoding, 3 unused, cached cardinality
	hllDense     = hllHeader + hllRegisters*6/8
)

// uvError is the standard error of the estimate: 1.04 / sqrt(2^14), as Redis states it.
const uvError = 0.0081

type registers [hllRegisters]uint8

// mark is where a user goes in a sketch: the register and the value it must have at least.
type mark struct {
	register uint16
	value    uint8
}

func markOf(user string) mark {
	h := murmur64A(unsafe.Slice(unsafe.StringData(user), len(user)), hllSeed)
	// The sentinel ends the run when all 50 bits are zero.
	return mark{uint16(h & (hllRegisters - 1)), uint8(bits.TrailingZeros64(h>>hllBits|1<<(64-hllBits)) + 1)}
}

// murmur64A is Austin Appleby's MurmurHash64A in the little-endian form that Redis uses on every machine.
func murmur64A(b []byte, seed uint64) uint64 {
	const m, r = 0xc6a4a7935bd1e995, 47
	h := seed ^ uint64(len(b))*m
	for ; len(b) >= 8; b = b[8:] {
		k := binary.LittleEndian.Uint64(b) * m
		k ^= k >> r
		h = (h ^ k*m) * m
	}
	if len(b) > 0 {
		var k uint64
		for i, c := range b {
			k |= uint64(c) << (8 * i)
		}
		h = (h ^ k) * m
	}
	h ^= h >> r
	h *= m
	return h ^ h>>r
}

var errDamagedSketch = errors.New("the value is not a sound HyperLogLog")

// read sets the registers to those of a stored sketch, in either encoding. An absent key is an empty sketch (""). Anything that is not
// sound is an error, never an empty sketch.
func (r *registers) read(stored string) error {
	clear(r[:])
	switch {
	case stored == "":
		return nil
	case len(stored) < hllHeader || stored[:4] != "HYLL":
		return errDamagedSketch
	case stored[4] == 0 && len(stored) == hllDense:
		r.readDense(stored[hllHeader:])
		return nil
	case stored[4] == 1:
		return r.readSparse(stored[hllHeader:])
	}
	return errDamagedSketch
}

// readDense unpacks registers of six bits, the lowest bits first: four of them in three bytes.
func (r *registers) readDense(s string) {
	for i := 0; i < hllRegisters; i += 4 {
		a, b, c := s[0], s[1], s[2]
		s = s[3:]
		r[i] = a & 63
		r[i+1] = (a>>6 | b<<2) & 63
		r[i+2] = (b>>4 | c<<4) & 63
		r[i+3] = c >> 2
	}
}

// readSparse unpacks runs: 00nnnnnn and 01nnnnnn nnnnnnnn are n+1 zeros, 1vvvvvnn is n+1 times the value v+1.
func (r *registers) readSparse(s string) error {
	at := 0
	for i := 0; i < len(s); i++ {
		op := s[i]
		run, value := 0, uint8(0)
		switch {
		case op&0x80 != 0:
			run, value = int(op&3)+1, op>>2&31+1
		case op&0x40 == 0:
			run = int(op&63) + 1
		default:
			i++
			if i == len(s) {
				return errDamagedSketch
			}
			run = int(op&63)<<8 | int(s[i]) + 1
		}
		if run > hllRegisters-at {
			return errDamagedSketch
		}
		if value != 0 {
			for k := range run {
				r[at+k] = value
			}
		}
		at += run
	}
	if at != hllRegisters {
		return errDamagedSketch
	}
	return nil
}
