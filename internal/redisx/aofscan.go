package redisx

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
)

// ending is how an incremental append-only file ends.
type ending struct {
	whole   int64 // where its last complete command or transaction ends
	open    int64 // where the MULTI begins whose EXEC is missing, or -1
	nested  bool  // another MULTI follows the open one: reading stopped there
	damaged bool  // what stands behind is no command, so Redis refuses the file: reading stopped there
}

var errDamaged = errors.New("not a command")

// scanAOF reads commands as Redis writes them, "*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n", and lines that begin with '#', its timestamps.
// Arguments are skipped unread; memory is one buffer. The error is the reader's own.
func scanAOF(r io.Reader) (ending, error) {
	s := aofScanner{in: bufio.NewReaderSize(r, 256<<10)}
	end := ending{open: -1}
	for {
		begin := s.at
		name, err := s.command()
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return end, nil
		case err == errDamaged:
			end.damaged = true
			return end, nil
		case err != nil:
			return end, err
		}
		switch {
		case name == beginMulti && end.open >= 0:
			end.nested = true
			return end, nil
		case name == beginMulti:
			end.open = begin
		case name == endExec:
			end.open = -1
		}
		if end.open < 0 {
			end.whole = s.at
		}
	}
}

type command uint8

const (
	anyOther command = iota
	beginMulti
	endExec
)

type aofScanner struct {
	in *bufio.Reader
	at int64 // bytes read
}

// command reads a command, or a line of Redis's own. Errors: io.EOF before it, io.ErrUnexpectedEOF within it, errDamaged.
func (s *aofScanner) command() (command, error) {
	switch first, err := s.in.Peek(1); {
	case err != nil:
		return anyOther, err
	case first[0] == '#':
		_, err := s.line()
		return anyOther, err
	}
	count, err := s.number('*')
	if err != nil {
		return anyOther, err
	}
	if count == 0 {
		return anyOther, errDamaged
	}
	name, err := s.name()
	if err != nil {
		return name, err
	}
	return name, s.skip(count - 1)
}

// name reads the first argument.
func (s *aofScanner) name() (command, error) {
	size, err := s.number('$')
	if err != nil {
		return anyOther, err
	}
	name := anyOther
	if size == len("EXEC") || size == len("MULTI") {
		text, err := s.in.Peek(size)
		if err != nil {
			return anyOther, torn(err)
		}
		switch {
		case bytes.EqualFold(text, []byte("MULTI")):
			name = beginMulti
		case bytes.EqualFold(text, []byte("EXEC")):
			name = endExec
		}
	}
	return name, s.discard(size + len("\r\n"))
}

// skip passes over n arguments: at once those that stand whole in the buffer, nearly always all of them.
func (s *aofScanner) skip(n int) error {
	for n > 0 {
		ahead, _ := s.in.Peek(s.in.Buffered())
		used := 0
		for n > 0 {
			size := argument(ahead[used:])
			if size == 0 || size > len(ahead)-used {
				break
			}
			used += size
			n--
		}
		if err := s.discard(used); err != nil || n == 0 {
			return err
		}
		size, err := s.number('$')
		if err != nil {
			return err
		}
		if err := s.discard(size + len("\r\n")); err != nil {
			return err
		}
		n--
	}
	return nil
}

// argument returns how long "$1\r\nk\r\n" is, or 0 where its size is not to be seen, or has more than seven digits.
func argument(ahead []byte) int {
	if len(ahead) == 0 || ahead[0] != '$' {
		return 0
	}
	size := 0
	for i := 1; i < len(ahead)-1 && i < 9; i++ {
		digit := ahead[i] - '0'
		if digit > 9 {
			if i == 1 || ahead[i] != '\r' || ahead[i+1] != '\n' {
				return 0
			}
			return i + len("\r\n") + size + len("\r\n")
		}
		size = 10*size + int(digit)
	}
	return 0
}

// discard skips n bytes. Like Redis it does not look at what ends an argument.
func (s *aofScanner) discard(n int) error {
	n, err := s.in.Discard(n)
	s.at += int64(n)
	return torn(err)
}

// number reads a line such as "*12\r\n".
func (s *aofScanner) number(sign byte) (int, error) {
	line, err := s.line()
	cut := errors.Is(err, io.ErrUnexpectedEOF)
	if err != nil && !cut {
		return 0, err
	}
	if len(line) == 0 {
		return 0, err
	}
	digits, whole := bytes.CutSuffix(line[1:], []byte("\r\n"))
	if cut {
		digits = bytes.TrimSuffix(digits, []byte("\r"))
	}
	if line[0] != sign || whole == cut || len(digits) == 0 && !cut || len(digits) > 10 {
		return 0, errDamaged
	}
	n := 0
	for _, c := range digits {
		if c < '0' || c > '9' || n > (math.MaxInt32-16)/10 { // far above what Redis takes, and an int everywhere
			return 0, errDamaged
		}
		n = 10*n + int(c-'0')
	}
	return n, err
}

// line reads to the end of a line; it is valid until the next read. With io.ErrUnexpectedEOF comes what there is of it.
func (s *aofScanner) line() ([]byte, error) {
	line, err := s.in.ReadSlice('\n')
	s.at += int64(len(line))
	if err == bufio.ErrBufferFull {
		return nil, errDamaged
	}
	return line, torn(err)
}

// torn makes the end of the file one within a command.
func torn(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
