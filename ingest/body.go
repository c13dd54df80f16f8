package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/rollcall/rollcall/internal/apperr"
)

// smallBody is what a body may decompress to in a buffer of its own. Only what is larger has to wait for one of the few buffers
// of the full limit, so many bombs at once cost little more than one.
const smallBody = 1 << 20

// largeBodies is how many bodies of more than smallBody, as sent, are held at a time: 128 MiB at the default limit.
const largeBodies = 16

// bodies reads the bodies of requests. It is safe for concurrent use.
type bodies struct {
	limit int // bytes, after decompression
	// What is costly exists only a few times, one for each processor, and is made when first needed (nil before). It is held for
	// the work of the processor alone: the compressed body is here already, so no slow client can keep it.
	large chan []byte // buffers of limit bytes
	// A body that is itself larger than smallBody is read as its client sends it, however slowly. So many may be on their way.
	slots chan struct{}
	zstds chan *zstd.Decoder // each may hold a window of 8 MiB
	gzips sync.Pool          // *gzip.Reader, some 40 KiB
	small sync.Pool          // *[]byte of up to smallBody
}

func newBodies(limit int) *bodies {
	n := max(2, runtime.GOMAXPROCS(0))
	bs := &bodies{
		limit: limit, large: make(chan []byte, n), zstds: make(chan *zstd.Decoder, n),
		gzips: sync.Pool{New: func() any { return new(gzip.Reader) }},
		small: sync.Pool{New: func() any { return new([]byte) }},
	}
	bs.slots = make(chan struct{}, largeBodies)
	for range n {
		bs.large <- nil
		bs.zstds <- nil
	}
	return bs
}

// The refusals of a body as a whole.
var (
	errEncoding   = apperr.New(apperr.Unsupported, CodeEncoding, "Content-Encoding is one of gzip, zstd and identity, not several.").On("Content-Encoding")
	errUnreadable = apperr.New(apperr.Malformed, CodeUnreadable, "The body could not be read to its end. Nothing was stored.")
	errNotGzip    = apperr.New(apperr.Malformed, CodeBadEncoding, "The body is not whole and valid gzip, as Content-Encoding says. Nothing was stored.").On("Content-Encoding")
	errNotZstd    = apperr.New(apperr.Malformed, CodeBadEncoding, "The body is not whole and valid zstd, as Content-Encoding says. Nothing was stored.").On("Content-Encoding")
	errWindow     = apperr.New(apperr.TooLarge, CodeBodyTooLarge, "The body was compressed with a zstd window of more than 8 MiB; compress it at a lower level, or without --long. Nothing was stored.").On("Content-Encoding").Over("8 MiB", "")
	errUnlabelled = apperr.New(apperr.Malformed, CodeBody, "The body looks compressed: send it with Content-Encoding: gzip or zstd. Nothing was stored.").On("Content-Encoding")
)

var errBusy = apperr.New(apperr.Unavailable, CodeBusy, "Too many large bodies are being read. Nothing was stored; send again later, or fewer events at a time.").
	Over(fmt.Sprintf("%d bodies of more than 1 MiB at a time", largeBodies), "").After(time.Second)

// errFull is a decompression that does not fit into its buffer.
var errFull = errors.New("ingest: buffer full")

// read returns the body, decompressed. release is to be called when the bytes are no longer needed; it may be called after an
// error too. The error is an *apperr.Error: Malformed, Unsupported or TooLarge.
func (bs *bodies) read(ctx context.Context, r io.Reader, encoding string) (body []byte, release func(), err error) {
	var decode func(dst, src []byte) ([]byte, error)
	switch e := strings.TrimSpace(encoding); {
	case e == "" || strings.EqualFold(e, "identity"):
	case strings.EqualFold(e, "gzip") || strings.EqualFold(e, "x-gzip"):
		decode = bs.gunzip
	case strings.EqualFold(e, "zstd"):
		decode = bs.unzstd
	default:
		return nil, func() {}, errEncoding
	}
	raw := bs.small.Get().(*[]byte)
	slot := false
	done := func() {
		if slot {
			slot = false
			<-bs.slots
		}
		bs.keep(raw)
	}
	release = done
	*raw, err = readAll(r, (*raw)[:0], min(smallBody, bs.limit))
	if errors.Is(err, errFull) && bs.limit > smallBody {
		select {
		case bs.slots <- struct{}{}:
			slot = true
			*raw, err = readAll(r, *raw, bs.limit)
		default:
			return nil, release, errBusy
		}
	}
	if err != nil {
		if errors.Is(err, errFull) {
			err = bs.tooLarge()
		} else {
			err = errUnreadable.With(err)
		}
		return nil, release, err
	}
	if decode == nil {
		if b := *raw; len(b) > 3 && (b[0] == 0x1f && b[1] == 0x8b || string(b[:4]) == "\x28\xb5\x2f\xfd") {
			return nil, release, errUnlabelled
		}
		return *raw, release, nil
	}
	if len(*raw) == 0 {
		return nil, release, nil
	}
	out := bs.small.Get().(*[]byte)
	release = func() { done(); bs.keep(out) }
	// Most bodies shrink to a fifth or a tenth. Too small a guess costs a second try.
	size := min(max(16*len(*raw), 32<<10), smallBody, bs.limit)
	if cap(*out) < size {
		*out = make([]byte, 0, size)
	}
	*out, err = decode((*out)[:0], *raw)
	for ; errors.Is(err, errFull) && cap(*out) < min(smallBody, bs.limit); *out, err = decode((*out)[:0], *raw) {
		*out = make([]byte, 0, min(smallBody, bs.limit))
	}
	if errors.Is(err, errFull) && cap(*out) < bs.limit {
		body, err = bs.decodeLarge(ctx, decode, *raw)
	} else {
		body = *out
	}
	if errors.Is(err, errFull) || err == nil && len(body) > bs.limit {
		err = bs.tooLarge()
	}
	if err != nil {
		return nil, release, err
	}
	return body, release, nil
}

// decodeLarge decompresses into one of the few buffers of the full limit and returns a copy of just the right size.
func (bs *bodies) decodeLarge(ctx context.Context, decode func(dst, src []byte) ([]byte, error), raw []byte) ([]byte, error) {
	var buf []byte
	select {
	case buf = <-bs.large:
	case <-ctx.Done():
		return nil, errUnreadable.With(ctx.Err())
	}
	if buf == nil {
		buf = make([]byte, 0, bs.limit)
	}
	defer func() { bs.large <- buf }()
	out, err := decode(buf[:0], raw)
	if err != nil {
		return nil, err
	}
	return bytes.Clone(out), nil
}

// keep puts a buffer back for the next request, unless it is one of the rare large ones.
func (bs *bodies) keep(b *[]byte) {
	if cap(*b) <= smallBody {
		bs.small.Put(b)
	}
}

func (bs *bodies) tooLarge() error {
	return apperr.New(apperr.TooLarge, CodeBodyTooLarge, "The body is over the limit of %d bytes (after decompression); send fewer events at a time. Nothing was stored.", bs.limit).
		Over(fmt.Sprintf("%d bytes", bs.limit), optionMaxBody)
}

// readAll appends all of r to dst; more than limit bytes are errFull.
func readAll(r io.Reader, dst []byte, limit int) ([]byte, error) {
	if r == nil {
		return dst, nil
	}
	for {
		if len(dst) == cap(dst) {
			// One byte over the limit is enough to see that there is more.
			grown := make([]byte, len(dst), min(max(4096, 2*cap(dst)), limit+1))
			copy(grown, dst)
			dst = grown
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if len(dst) > limit {
			return dst, errFull
		}
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
	}
}

// gunzip decompresses all members of src into the capacity of dst. What is cut off, or followed by anything else, is refused.
func (bs *bodies) gunzip(dst, src []byte) ([]byte, error) {
	z := bs.gzips.Get().(*gzip.Reader)
	defer bs.gzips.Put(z)
	err := z.Reset(bytes.NewReader(src))
	if err == nil {
		dst, err = fill(dst, z)
	}
	if err != nil && !errors.Is(err, errFull) {
		err = errNotGzip.With(err)
	}
	return dst, err
}

// unzstd decompresses all frames of src into the capacity of dst.
func (bs *bodies) unzstd(dst, src []byte) (_ []byte, err error) {
	z := <-bs.zstds
	defer func() { bs.zstds <- z }()
	if z == nil {
		// One goroutine, the caller's. A frame's window is bounded like the body it belongs to, but 8 MiB must be supported (RFC 8878).
		window := uint64(max(bs.limit, 8<<20))
		z, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(window), zstd.WithDecoderMaxWindow(window))
		if err != nil {
			return dst, err
		}
	}
	if err = z.Reset(bytes.NewReader(src)); err == nil {
		dst, err = fill(dst, z)
	}
	switch {
	case err == nil, errors.Is(err, errFull):
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		err = errWindow
	case errors.Is(err, zstd.ErrDecoderSizeExceeded):
		err = bs.tooLarge()
	default:
		err = errNotZstd.With(err)
	}
	return dst, err
}

// fill appends all of r to dst within its capacity; more is errFull.
func fill(dst []byte, r io.Reader) ([]byte, error) {
	for {
		to := dst[len(dst):cap(dst)]
		full := len(to) == 0
		if full {
			to = make([]byte, 1) // there may be nothing more but the end
		}
		n, err := r.Read(to)
		if full && n > 0 {
			return dst, errFull
		}
		dst = dst[:len(dst)+n]
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
	}
}
