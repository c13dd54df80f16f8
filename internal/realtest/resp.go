package realtest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
)

// Limits of what the proxy takes; the server's own are 1,048,576 words and 512 MiB a word.
const (
	maxWords   = 1 << 20
	maxCommand = 64 << 20 // bytes, all words together
	maxLine    = 64 << 10
)

// readCommand reads one request: an array of bulk strings, or an inline line. raw is the request as it came, cmd its words,
// which point into raw.
func readCommand(r *bufio.Reader) (raw []byte, cmd [][]byte, err error) {
	line, err := readLine(r)
	if err != nil {
		return nil, nil, err
	}
	raw = append(raw, line...)
	if line[0] != '*' {
		return raw, bytes.Fields(raw), nil
	}
	n, err := number(line)
	if err != nil || n > maxWords {
		return nil, nil, fmt.Errorf("request of %.40q words", line)
	}
	type span struct{ from, to int }
	var spans []span
	for range n {
		if line, err = readLine(r); err != nil {
			return nil, nil, unexpected(err)
		}
		size, err := number(line)
		if err != nil || line[0] != '$' || size < 0 || int64(len(raw))+size > maxCommand {
			return nil, nil, fmt.Errorf("word of %.40q in a request of %d bytes so far (limit %d)", line, len(raw), maxCommand)
		}
		raw = append(raw, line...)
		from := len(raw)
		raw = append(raw, make([]byte, size+2)...)
		if _, err := io.ReadFull(r, raw[from:]); err != nil {
			return nil, nil, unexpected(err)
		}
		spans = append(spans, span{from, from + int(size)})
	}
	for _, s := range spans {
		cmd = append(cmd, raw[s.from:s.to])
	}
	return raw, cmd, nil
}

// copyReply copies one reply (RESP2 or RESP3) to dst(push), where push tells an out-of-band message from an answer. It keeps no
// more than a line in memory.
func copyReply(r *bufio.Reader, dst func(push bool) io.Writer) error {
	first, err := r.Peek(1)
	if err != nil {
		return err
	}
	w := dst(first[0] == '>')
	for left := int64(1); left > 0; left-- {
		line, err := readLine(r)
		if err != nil {
			return unexpected(err)
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
		switch line[0] {
		case '*', '~', '>', '%', '|', '$', '=', '!':
		default:
			continue
		}
		n, err := number(line)
		if err != nil {
			return err
		}
		switch line[0] {
		case '*', '~', '>':
			left += max(0, n)
		case '%':
			left += 2 * max(0, n)
		case '|': // attributes stand before the value they belong to
			left += 2*max(0, n) + 1
		default:
			if n >= 0 {
				if _, err := io.CopyN(w, r, n+2); err != nil {
					return unexpected(err)
				}
			}
		}
	}
	return nil
}

// readLine reads up to and with the line feed; the slice is good until the next read.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		return nil, fmt.Errorf("line longer than %d bytes", maxLine)
	}
	if err != nil && len(line) > 0 {
		err = unexpected(err)
	}
	return line, err
}

func number(line []byte) (int64, error) {
	return strconv.ParseInt(string(bytes.TrimSpace(line[1:])), 10, 64)
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
