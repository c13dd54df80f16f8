package files

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync/atomic"
)

const errTooLong = rowError("the line is over the limit of 65536 bytes")

// lines reads physical lines of up to MaxLine bytes in bounded memory.
type lines struct {
	r     *bufio.Reader
	read  *atomic.Int64
	first int64  // number of the line that began the current row
	next  int64  // number of the line that comes next
	again []byte // lines that were read ahead and are to be read again
	cut   bool   // the last line of again is but the beginning of one that is too long
}

func (l *lines) init(r io.Reader, read *atomic.Int64) {
	l.r, l.read, l.next = bufio.NewReaderSize(r, MaxLine+2), read, 1
	if b, err := l.r.Peek(3); err == nil && string(b) == "\xef\xbb\xbf" { // byte order mark
		n, _ := l.r.Discard(3)
		read.Add(int64(n))
	}
}

// line returns the next line with its end as it is in the file; the last may have none. It is valid until the next call. Of a line
// that is too long, the error is errTooLong and what is returned its beginning. io.EOF comes without a line.
func (l *lines) line() ([]byte, error) {
	if len(l.again) > 0 {
		n := bytes.IndexByte(l.again, '\n') + 1
		if n == 0 {
			n = len(l.again)
		}
		b := l.again[:n]
		l.again = l.again[n:]
		l.next++
		if len(l.again) == 0 && l.cut {
			l.cut = false
			return b, errTooLong
		}
		return b, nil
	}
	b, err := l.r.ReadSlice('\n')
	l.read.Add(int64(len(b)))
	if errors.Is(err, bufio.ErrBufferFull) || err == nil && len(trimEnd(b)) > MaxLine || err == io.EOF && len(b) > MaxLine {
		begin := bytes.Clone(b[:MaxLine])
		for errors.Is(err, bufio.ErrBufferFull) {
			b, err = l.r.ReadSlice('\n')
			l.read.Add(int64(len(b)))
		}
		if err != nil && err != io.EOF {
			return nil, err
		}
		l.next++
		return begin, errTooLong
	}
	if err == io.EOF && len(b) > 0 {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	l.next++
	return b, nil
}

// rewind makes lines that were read be read again, before those that already wait for it. next is the number of the first.
func (l *lines) rewind(read []byte, next int64, cut bool) {
	l.again = append(read, l.again...)
	l.next, l.cut = next, l.cut || cut
}

// row returns the next line that is not blank, without its end, and begins a row with it.
func (l *lines) row() ([]byte, error) {
	for {
		l.first = l.next
		b, err := l.line()
		if err != nil {
			return b, err
		}
		if b = trimEnd(b); len(bytes.TrimSpace(b)) > 0 {
			return b, nil
		}
	}
}

// trimEnd cuts LF or CR LF.
func trimEnd(b []byte) []byte {
	if b = bytes.TrimSuffix(b, []byte{'\n'}); len(b) > 0 && b[len(b)-1] == '\r' {
		b = b[:len(b)-1]
	}
	return b
}
