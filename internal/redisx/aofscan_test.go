package redisx

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// resp writes commands as Redis does, one per string, its words separated by spaces.
func resp(commands ...string) string {
	var b strings.Builder
	for _, c := range commands {
		if strings.HasPrefix(c, "#") {
			b.WriteString(c + "\r\n")
			continue
		}
		words := strings.Split(c, " ")
		fmt.Fprintf(&b, "*%d\r\n", len(words))
		for _, w := range words {
			fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
		}
	}
	return b.String()
}

func TestScanAOF(t *testing.T) {
	size := func(commands ...string) int64 { return int64(len(resp(commands...))) }
	set, big := "SET k v", "SET k "+strings.Repeat("x", 700<<10)
	for name, c := range map[string]struct {
		text string
		want ending
	}{
		"empty":               {"", ending{open: -1}},
		"commands":            {resp(set, "PING", set), ending{open: -1, whole: size(set, "PING", set)}},
		"transaction":         {resp(set, "MULTI", set, "EXEC"), ending{open: -1, whole: size(set, "MULTI", set, "EXEC")}},
		"any case":            {resp("mUlTi", set, "exec", "multi"), ending{open: size("MULTI", set, "EXEC"), whole: size("MULTI", set, "EXEC")}},
		"open":                {resp(set, "MULTI", set), ending{open: size(set), whole: size(set)}},
		"nested":              {resp(set, "MULTI", set, "MULTI", set, "EXEC"), ending{open: size(set), whole: size(set), nested: true}},
		"EXEC alone":          {resp("EXEC", set), ending{open: -1, whole: size("EXEC", set)}},
		"names as arguments":  {resp("SET MULTI EXEC", "DEL MULTI"), ending{open: -1, whole: size("SET MULTI EXEC", "DEL MULTI")}},
		"timestamps":          {resp("#TS:1", set, "MULTI", "#TS:2", set, "EXEC"), ending{open: -1, whole: size("#TS:1", set, "MULTI", "#TS:2", set, "EXEC")}},
		"torn timestamp":      {resp(set) + "#TS:1", ending{open: -1, whole: size(set)}},
		"longer than buffers": {resp(big, "MULTI", big, "EXEC", "MULTI", big), ending{open: size(big, "MULTI", big, "EXEC"), whole: size(big, "MULTI", big, "EXEC")}},
		"payload with lines":  {resp(set) + "*2\r\n$3\r\nDEL\r\n$15\r\n*1\r\n$5\r\nMULTI\r\n\r\n", ending{open: -1, whole: size(set) + 35}},
		"garbage":             {resp(set) + "garbage", ending{open: -1, whole: size(set), damaged: true}},
		"garbage within":      {resp(set, "MULTI") + "\x00\x00\x00", ending{open: size(set), whole: size(set), damaged: true}},
		"no sign of argument": {resp(set) + "*1\r\n*1\r\n", ending{open: -1, whole: size(set), damaged: true}},
		"no count":            {resp(set) + "*\r\n", ending{open: -1, whole: size(set), damaged: true}},
		"no arguments":        {resp(set) + "*0\r\n", ending{open: -1, whole: size(set), damaged: true}},
		"negative size":       {resp(set) + "*1\r\n$-1\r\n", ending{open: -1, whole: size(set), damaged: true}},
		"endless size":        {resp(set) + "*1\r\n$99999999999\r\n", ending{open: -1, whole: size(set), damaged: true}},
		"wide size":           {resp(set) + "*1\r\n$9999999999\r\n", ending{open: -1, whole: size(set), damaged: true}},
		"size beyond the end": {resp(set) + "*1\r\n$2147483639\r\nx", ending{open: -1, whole: size(set)}},
		"endless line":        {resp(set) + "#" + strings.Repeat("x", 1<<20), ending{open: -1, whole: size(set), damaged: true}},
	} {
		t.Run(name, func(t *testing.T) {
			for how, r := range map[string]io.Reader{
				"at once": strings.NewReader(c.text), "halves": iotest.HalfReader(strings.NewReader(c.text)),
			} {
				if got, err := scanAOF(r); got != c.want || err != nil {
					t.Errorf("%s: %+v, %v; want %+v", how, got, err, c.want)
				}
			}
		})
	}
	broken := errors.New("broken disk")
	if _, err := scanAOF(io.MultiReader(strings.NewReader(resp(set)), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("a reader's error comes back as %v", err)
	}
}

// Cut anywhere, the file ends behind the last transaction that is whole.
func TestScanAOF_EveryCut(t *testing.T) {
	pieces := []string{resp("SELECT 0"), resp("#TS:12"), resp("MULTI", "HSET m d 1", "HINCRBY p f 100", "EXEC"), resp("SET k 12345678901"), resp("MULTI", "DEL k", "EXEC")}
	text := strings.Join(pieces, "")
	whole, next := 0, 0
	for n := 0; n <= len(text); n++ {
		for next < len(pieces) && n >= whole+len(pieces[next]) {
			whole += len(pieces[next])
			next++
		}
		for how, r := range map[string]io.Reader{"at once": strings.NewReader(text[:n]), "bytes": iotest.OneByteReader(strings.NewReader(text[:n]))} {
			if end, err := scanAOF(r); err != nil || end.damaged || end.nested || end.whole != int64(whole) {
				t.Fatalf("%s, %q: %+v, %v; want whole %d", how, text[:n], end, err, whole)
			}
		}
	}
}

func FuzzScanAOF(f *testing.F) {
	f.Add([]byte(resp("SELECT 0", "MULTI", "HINCRBY p f 100", "EXEC", "MULTI", "SET k v")))
	f.Add([]byte(resp("#TS:1", "MULTI", "DEL k", "MULTI", "EXEC")))
	f.Add([]byte("*2\r\n$3\r\nDEL\r\n$00000001\r\nk\r\n*1\r\n$4"))
	f.Add([]byte("*1\r\n$5\r\nMULTI\r\n\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		end, err := scanAOF(bytes.NewReader(data))
		if err != nil || end.whole < 0 || end.whole > int64(len(data)) || end.open > int64(len(data)) {
			t.Fatalf("%q: %+v, %v", data, end, err)
		}
		if slow, err := scanAOF(iotest.OneByteReader(bytes.NewReader(data))); slow != end || err != nil {
			t.Fatalf("%q: %+v, %v; at once %+v", data, slow, err, end)
		}
		// What is left after a cut is whole, and takes the next transaction.
		left := data[:end.whole]
		if again, err := scanAOF(bytes.NewReader(left)); again != (ending{whole: end.whole, open: -1}) || err != nil {
			t.Fatalf("%q cut to %q: %+v, %v", data, left, again, err)
		}
		more := resp("MULTI", "DEL k", "EXEC")
		if next, err := scanAOF(strings.NewReader(string(left) + more)); next != (ending{whole: end.whole + int64(len(more)), open: -1}) || err != nil {
			t.Fatalf("%q cut and appended to: %+v, %v", data, next, err)
		}
	})
}

func BenchmarkScanAOF(b *testing.B) {
	for name, command := range map[string]string{
		"hincrby": "HINCRBY rc:{0a}:pv:demo:d:2015-05-17 GET%20/index.html 1",
		"hset":    "HSET rc:{0a}:meta:counters dirty 1 offset 123456 epoch abcdef",
		"pfadd":   "PFADD rc:{0a}:uv " + strings.Repeat("0123456789abcdef ", 50) + "x",
		"strings": "SET k " + strings.Repeat("x", 12<<10),
	} {
		b.Run(name, func(b *testing.B) {
			part := resp("MULTI", command, command, command, command, "EXEC")
			data := []byte(strings.Repeat(part, 8<<20/len(part)))
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if end, err := scanAOF(bytes.NewReader(data)); err != nil || end.whole != int64(len(data)) {
					b.Fatal(end, err)
				}
			}
		})
	}
}
