package ingest

import (
	"slices"
	"strconv"
	"unicode/utf8"
)

// Result is what became of a request's events: Received = Accepted + Duplicates + Bots + len(Rejected), always.
type Result struct {
	Received   int
	Accepted   int
	Duplicates int // known only if Applied; else they are among Accepted
	Bots       int // stored, but a bot's: no PV and no UV
	Rejected   []Rejection
	DryRun     bool // nothing was stored
	Waited     bool // the request asked to wait
	Applied    bool // the projections have applied the events, so queries see them
}

// AllRejected tells whether there were events and none was good: the answer is then 422.
func (r *Result) AllRejected() bool { return r.Received > 0 && len(r.Rejected) == r.Received }

// AllTooFrequent tells whether there were events and a frequency rule refused each: the answer is then 429.
func (r *Result) AllTooFrequent() bool {
	return r.AllRejected() && !slices.ContainsFunc(r.Rejected, func(x Rejection) bool { return x.Code != CodeTooFrequent })
}

// AppendJSON appends the answer: {"received":3,"accepted":2,"rejected":[{"index":1,"id":"…","code":"too_late","field":"ts",
// "detail":"…"}]}; id and field are left out when there is none. A request that waited has "duplicates" and "applied" too, a bot's
// has "bots", and one that was only judged "dry_run".
func (r *Result) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"received":`...)
	dst = strconv.AppendInt(dst, int64(r.Received), 10)
	dst = append(dst, `,"accepted":`...)
	dst = strconv.AppendInt(dst, int64(r.Accepted), 10)
	if r.Waited {
		dst = append(dst, `,"duplicates":`...)
		dst = strconv.AppendInt(dst, int64(r.Duplicates), 10)
		dst = append(dst, `,"applied":`...)
		dst = strconv.AppendBool(dst, r.Applied)
	}
	if r.Bots > 0 {
		dst = strconv.AppendInt(append(dst, `,"bots":`...), int64(r.Bots), 10)
	}
	if r.DryRun {
		dst = append(dst, `,"dry_run":true`...)
	}
	dst = append(dst, `,"rejected":[`...)
	for i := range r.Rejected {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = r.Rejected[i].append(dst)
	}
	return append(dst, "]}"...)
}

func (r *Rejection) append(dst []byte) []byte {
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(r.Index), 10)
	if r.ID != "" {
		dst = AppendQuoted(append(dst, `,"id":`...), r.ID)
	}
	dst = AppendQuoted(append(dst, `,"code":`...), r.Code)
	if r.Field != "" {
		dst = AppendQuoted(append(dst, `,"field":`...), r.Field)
	}
	dst = AppendQuoted(append(dst, `,"detail":`...), r.Detail)
	return append(dst, '}')
}

// AppendQuoted appends s as a JSON string that is safe inside HTML as well. Bytes that are not UTF-8 become U+FFFD.
func AppendQuoted(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
			i++
		case c < ' ' || c == 0x7f || c == '<' || c == '>' || c == '&':
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			i++
		case c < utf8.RuneSelf:
			dst = append(dst, c)
			i++
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == '\u2028' || r == '\u2029' {
				dst = append(dst, '\\', 'u', '2', '0', '2', hex[r&15])
			} else {
				dst = utf8.AppendRune(dst, r)
			}
			i += n
		}
	}
	return append(dst, '"')
}
