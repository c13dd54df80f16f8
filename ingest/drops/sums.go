package drops

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rollcall/rollcall/internal/projection"
)

// Sums are numbers of events. Received = Accepted + Duplicates + Bots + everything in Rejected, always: it is not stored.
type Sums struct {
	Received   int64            `json:"received"`
	Accepted   int64            `json:"accepted"`
	Duplicates int64            `json:"duplicates"`
	Bots       int64            `json:"bots"`     // stored, but in no PV and no UV
	Rejected   map[string]int64 `json:"rejected"` // by code
}

// addChunk adds what a request brought. The codes' strings are the chunk's own.
func (s *Sums) addChunk(c *projection.Chunk) {
	s.Duplicates += int64(c.Duplicates)
	if c.Bot {
		s.Bots += int64(c.Events - c.Duplicates)
	} else {
		s.Accepted += int64(c.Events - c.Duplicates)
	}
	if len(c.Rejected) == 0 {
		return
	}
	for code, n := range c.Rejected.All() {
		s.reject(code, n)
	}
}

func (s *Sums) reject(code string, n int64) {
	if s.Rejected == nil {
		s.Rejected = map[string]int64{}
	}
	s.Rejected[code] += n
}

// add adds other sums.
func (s *Sums) add(o *Sums) {
	s.Received += o.Received
	s.Accepted += o.Accepted
	s.Duplicates += o.Duplicates
	s.Bots += o.Bots
	for code, n := range o.Rejected {
		s.reject(code, n)
	}
}

// RejectedTotal is the number of events in Rejected.
func (s *Sums) RejectedTotal() (n int64) {
	for _, m := range s.Rejected {
		n += m
	}
	return n
}

// each calls f with every kind that is not zero.
func (s *Sums) each(f func(kind string, n int64)) {
	for _, k := range []struct {
		kind string
		n    int64
	}{{acceptedKind, s.Accepted}, {duplicatesKind, s.Duplicates}, {botsKind, s.Bots}} {
		if k.n != 0 {
			f(k.kind, k.n)
		}
	}
	for code, n := range s.Rejected {
		f(rejectedKind+code, n)
	}
}

// addStored adds a stored field.
func (s *Sums) addStored(kind, value string) error {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return err
	}
	switch kind {
	case acceptedKind:
		s.Accepted += n
	case duplicatesKind:
		s.Duplicates += n
	case botsKind:
		s.Bots += n
	default:
		code, ok := strings.CutPrefix(kind, rejectedKind)
		if !ok {
			return fmt.Errorf("%w: kind %q", projection.ErrDamaged, kind)
		}
		s.reject(code, n)
	}
	s.Received += n
	return nil
}
