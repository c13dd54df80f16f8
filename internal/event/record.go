package event

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"

	"github.com/klauspost/compress/s2"
)

// A record, numbers little-endian:
//
//	"rc" 1 | CRC-32C u32 of all that follows | producer u64 | number u64 | received i64 (ms) | S2 block: the chunks, one after another
const (
	recordVersion = 1
	recordHead    = 3 + 4 + 8 + 8 + 8

	maxBody = 64 << 20 // bytes of all chunks of a record; ingest stays far below
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrDamaged is a record whose bytes are not what was written.
var ErrDamaged = errors.New("event: damaged record")

// ErrVersion is a record of a version this program does not know.
var ErrVersion = errors.New("event: record of an unknown version")

// Header says where a record comes from. Producer is one ingest process, Number counts its records: two records with the same
// pair are one record, appended again because its acknowledgement was lost.
type Header struct {
	Producer uint64
	Number   uint64
	Received int64 // unix milliseconds
}

// ChunkInfo is the place of a request's events in a record.
type ChunkInfo struct {
	First, Count int
	Notify       bool // its caller waits until the events are applied
}

// Record is a decoded record. Decode fills it; its slices are used again by the next Decode.
type Record struct {
	Header
	Chunks []ChunkInfo
	Events []Event
	Sum    uint32 // the CRC: tells this record from any other at the same place
	names  []string
}

var bodies = sync.Pool{New: func() any { return new([]byte) }}

// AppendRecord appends a record of the chunks to dst. Chunks may come from different requests.
func AppendRecord(dst []byte, h Header, chunks ...[]byte) []byte {
	start := len(dst)
	dst = append(dst, 'r', 'c', recordVersion, 0, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, h.Producer)
	dst = binary.LittleEndian.AppendUint64(dst, h.Number)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.Received))
	body := chunks[0]
	if len(chunks) > 1 {
		buf := bodies.Get().(*[]byte)
		defer bodies.Put(buf)
		*buf = (*buf)[:0]
		for _, c := range chunks {
			*buf = append(*buf, c...)
		}
		body = *buf
	}
	n := len(dst)
	if need := s2.MaxEncodedLen(len(body)); cap(dst)-n < need {
		dst = append(make([]byte, 0, n+need), dst...)
	}
	dst = dst[:n+len(s2.Encode(dst[n:cap(dst)], body))]
	binary.LittleEndian.PutUint32(dst[start+3:], crc32.Checksum(dst[start+7:], castagnoli))
	return dst
}

// ReadHeader returns a record's header and checksum. It verifies the checksum, not the chunks.
func ReadHeader(data []byte) (Header, uint32, error) {
	var h Header
	if len(data) < 3 || data[0] != 'r' || data[1] != 'c' {
		return h, 0, fmt.Errorf("%w: no record", ErrDamaged)
	}
	if data[2] != recordVersion {
		return h, 0, fmt.Errorf("%w: %d", ErrVersion, data[2])
	}
	if len(data) < recordHead {
		return h, 0, fmt.Errorf("%w: %d bytes", ErrDamaged, len(data))
	}
	sum := binary.LittleEndian.Uint32(data[3:])
	if crc32.Checksum(data[7:], castagnoli) != sum {
		return h, 0, fmt.Errorf("%w: checksum", ErrDamaged)
	}
	h.Producer = binary.LittleEndian.Uint64(data[7:])
	h.Number = binary.LittleEndian.Uint64(data[15:])
	h.Received = int64(binary.LittleEndian.Uint64(data[23:]))
	return h, sum, nil
}

// Decode reads a record. The strings of its events alias one buffer that is made for this record alone.
func (r *Record) Decode(data []byte) error {
	var err error
	r.Chunks, r.Events = r.Chunks[:0], r.Events[:0]
	if r.Header, r.Sum, err = ReadHeader(data); err != nil {
		return err
	}
	block := data[recordHead:]
	n, err := s2.DecodedLen(block)
	if err != nil || n > maxBody {
		return fmt.Errorf("%w: size", ErrDamaged)
	}
	body, err := s2.Decode(make([]byte, n), block)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	for len(body) > 0 {
		var ok bool
		if body, ok = r.decodeChunk(body); !ok {
			return fmt.Errorf("%w: chunk %d", ErrDamaged, len(r.Chunks))
		}
	}
	return nil
}
