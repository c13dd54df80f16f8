package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Fault is one thing wrong with the configuration.
type Fault struct {
	Name string // of the option, or of the file
	Text string
}

// Faults is everything wrong with the configuration. It is an error only when it is not empty: see Err.
type Faults []Fault

func (f *Faults) add(name, format string, args ...any) {
	*f = append(*f, Fault{name, fmt.Sprintf(format, args...)})
}

// Err returns nil when there is no fault.
func (f Faults) Err() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// Error lists every fault, one a line.
func (f Faults) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the configuration has %d fault", len(f))
	if len(f) != 1 {
		b.WriteByte('s')
	}
	for _, x := range f {
		fmt.Fprintf(&b, "\n  %s: %s", x.Name, x.Text)
	}
	return b.String()
}

func item(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// nearest returns the known name with the fewest edits from name, "" if none is near.
func nearest(name string, known []string) string {
	best, at := "", max(2, len(name)/3)+1
	for _, k := range known {
		if d := edits(name, k); d < at {
			best, at = k, d
		}
	}
	return best
}

// edits is the Levenshtein distance in bytes. Names are short: at most 64 bytes are looked at.
func edits(a, b string) int {
	a, b = a[:min(len(a), 64)], b[:min(len(b), 64)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost++
			}
			diag = row[j+1]
			row[j+1] = min(cost, row[j]+1, diag+1)
		}
	}
	return row[len(b)]
}
