package event

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"unsafe"

	"github.com/klauspost/compress/s2"
)

// A record, version 1, integers little-endian:
//
//	"rcj" · version (1 byte) · CRC-32C of all that follows (4) · flags (1) · producer (8) · number (8) · received, unix ms (8) · body
//
// The body is the chunks, each behind its length (varint); with flagS2 it is compressed as one S2 block.
// docs/adr/0004-event-record-format.md tells why.
const (
	magic      = "rcj"
	version    = 1
	flagS2     = 1
	crcAt      = len(magic) + 1
	sealedAt   = crcAt + 4
	headerSize = sealedAt + 1 + 3*8
)

// Limits of a record, checked before anything is allocated for it.
const (
	// MaxBody is the most that the chunks of one record may have in bytes, before compression.
	MaxBody = 16 << 20
	// MaxMemory is the most that Decode allocates for one record: its body, its events, its chunks and the text of its packed ids.
	// Any number of chunks of together 1 MiB fit (the smallest event has 2 bytes, and 128 decoded), and so does one chunk of
	// MaxBody with MaxChunkEvents events.
	MaxMemory = 96 << 20
	// MaxChunkEvents is the most events of a chunk that is over 1 MiB.
	MaxChunkEvents = 200_000

	minEvent = 2 // bytes: flags and name
)

// Faults of a record. Match with errors.Is.
var (
	ErrDamaged = errors.New("event: damaged record")
	ErrVersion = errors.New("event: record of an unknown version")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header says who wrote a record. Producer is random per process, Number counts its records from 1: a record that stands in the
// journal twice has the same pair. Received is when it was written, in unix milliseconds.
type Header struct {
	Producer, Number uint64
	Received         int64
}

// ChunkInfo says which events of a record came in one request: Count of them, from index First on. Its string and bytes alias the record's
// buffer, as those of an Event do.
type ChunkInfo struct {
	First, Count int
	Notify, Bot  bool
	Project      string
	Received     int64      // unix milliseconds, when ingest took the request
	Rejected     Rejections // of the request; nil = none
}

// Record is a decoded record.
type Record struct {
	Header
	Chunks []ChunkInfo
	Events []Event
	Sum    uint32 // its CRC-32C: two records with one Sum at one place in the journal are the same record
}

var bodies = sync.Pool{New: func() any { return new([]byte) }}

// AppendRecord appends a record of the chunks (what Builder.Bytes returned) to dst. More than one chunk must not exceed 1 MiB
// together, a single one neither MaxBody nor, over 1 MiB, MaxChunkEvents. It panics beyond MaxBody: better than a record that
// nobody can read.
func AppendRecord(dst []byte, h Header, chunks ...[]byte) []byte {
	scratch := bodies.Get().(*[]byte)
	body := (*scratch)[:0]
	for _, c := range chunks {
		body = binary.AppendUvarint(body, uint64(len(c)))
		body = append(body, c...)
	}
	if len(body) > MaxBody {
		panic(fmt.Sprintf("event: a record of %d bytes, the limit is %d", len(body), MaxBody))
	}

	start := len(dst)
	dst = append(dst, magic...)
	dst = append(dst, version, 0, 0, 0, 0, flagS2)
	dst = binary.LittleEndian.AppendUint64(dst, h.Producer)
	dst = binary.LittleEndian.AppendUint64(dst, h.Number)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.Received))
	at := len(dst)
	if need := at + s2.MaxEncodedLen(len(body)); cap(dst) < need {
		dst = append(make([]byte, 0, need), dst...)
	}
	packed := s2.Encode(dst[at:cap(dst)], body)
	if len(packed) < len(body) {
		dst = dst[:at+len(packed)]
	} else {
		dst = append(dst[:at], body...)
		dst[start+sealedAt] = 0
	}
	putSum(dst[start:])

	if cap(body) <= 4<<20 {
		*scratch = body
		bodies.Put(scratch)
	}
	return dst
}

func putSum(record []byte) {
	binary.LittleEndian.PutUint32(record[crcAt:], crc32.Checksum(record[sealedAt:], castagnoli))
}

// ReadHeader checks a record's checksum and returns its header and the checksum. Errors: ErrDamaged, ErrVersion.
func ReadHeader(data []byte) (Header, uint32, error) {
	var h Header
	if len(data) < headerSize || string(data[:len(magic)]) != magic {
		return h, 0, fmt.Errorf("%w: it does not begin like one", ErrDamaged)
	}
	if v := data[len(magic)]; v != version {
		return h, 0, fmt.Errorf("%w: it is %d, known is %d", ErrVersion, v, version)
	}
	sum := binary.LittleEndian.Uint32(data[crcAt:])
	if have := crc32.Checksum(data[sealedAt:], castagnoli); have != sum {
		return h, 0, fmt.Errorf("%w: its checksum is %08x, its content has %08x", ErrDamaged, sum, have)
	}
	if f := data[sealedAt]; f&^flagS2 != 0 {
		return h, 0, fmt.Errorf("%w: flags %02x", ErrVersion, f)
	}
	h.Producer = binary.LittleEndian.Uint64(data[sealedAt+1:])
	h.Number = binary.LittleEndian.Uint64(data[sealedAt+9:])
	h.Received = int64(binary.LittleEndian.Uint64(data[sealedAt+17:]))
	return h, sum, nil
}

// Decode replaces r by the record in data. The slices of r are used again; the strings and props alias fresh buffers (two for the
// whole record), so they stay valid when r is decoded into again. data is not kept. After an error r is empty. Errors: ErrDamaged, ErrVersion.
func (r *Record) Decode(data []byte) error {
	clear(r.Events) // lets the buffer of the record before go
	clear(r.Chunks)
	r.Events, r.Chunks = r.Events[:0], r.Chunks[:0]
	r.Header, r.Sum = Header{}, 0
	h, sum, err := ReadHeader(data)
	if err != nil {
		return err
	}
	d := decoder{rec: r}
	if err := d.open(data[sealedAt]&flagS2 != 0, data[headerSize:]); err != nil {
		return err
	}
	if !d.decode() {
		clear(r.Events)
		r.Events, r.Chunks = r.Events[:0], r.Chunks[:0]
		return fmt.Errorf("%w: its checksum is right, its content is not", ErrDamaged)
	}
	r.Header, r.Sum = h, sum
	return nil
}

// decoder is the state of one Decode.
type decoder struct {
	rec   *Record
	body  reader
	texts []byte           // room for the text of packed ids
	names [maxNames]string // seen in the record: equal names become one string
	known int
}

// open decompresses the body and counts, chunk by chunk, what it will need.
func (d *decoder) open(packed bool, body []byte) error {
	size := len(body)
	if packed {
		var err error
		if size, err = s2.DecodedLen(body); err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	if size > MaxBody {
		return fmt.Errorf("%w: its body of %d bytes is over the limit of %d", ErrDamaged, size, MaxBody)
	}
	buf := make([]byte, size)
	if packed {
		var err error
		if buf, err = s2.Decode(buf, body); err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	} else {
		copy(buf, body)
	}
	d.body = reader{b: buf}
	var chunks, events, ids uint64
	for r := d.body; r.at < len(r.b); {
		c := reader{b: r.take(r.uvarint())}
		h := c.chunkHeader()
		left := uint64(len(c.b) - c.at)
		if r.bad || c.bad || h.events > left/minEvent || h.packed > h.events || h.packed > left/(minEvent+16) {
			return fmt.Errorf("%w: a chunk's header is not right", ErrDamaged)
		}
		chunks++
		events += h.events
		ids += h.packed
	}
	need := uint64(size) + chunks*uint64(unsafe.Sizeof(ChunkInfo{})) + events*uint64(unsafe.Sizeof(Event{})) + ids*UUIDText
	if need > MaxMemory {
		return fmt.Errorf("%w: it needs %d bytes of memory, the limit is %d", ErrDamaged, need, MaxMemory)
	}
	if n := int(events); cap(d.rec.Events) < n {
		d.rec.Events = make([]Event, 0, n)
	}
	if n := int(chunks); cap(d.rec.Chunks) < n {
		d.rec.Chunks = make([]ChunkInfo, 0, n)
	}
	d.texts = make([]byte, int(ids)*UUIDText)
	return nil
}
