package ingest

import (
	"math"
	"strconv"
	"strings"
)

// instant is a moment that a client gave, in unix milliseconds. It is not known if the client gave none, or a bad one.
type instant struct {
	ms         int64
	known, bad bool
}

// instant reads a time: RFC 3339 with an offset, a number, a string that is nothing but a number, or null for none.
func (j *judge) instant(to *instant, field string) bool {
	var ms int64
	good := false
	switch c := j.peek(); {
	case c == '"':
		t, ok := j.str()
		if !ok {
			return false
		}
		if v, ok := t.decode(&j.scratch); ok {
			ms, good = parseTime(v)
		}
	case c == '-' || c-'0' <= 9:
		lit, _, ok := j.number()
		if !ok {
			return false
		}
		ms, good = parseUnix(alias(lit))
	case c == 'n':
		return j.word("null")
	default:
		if !j.skip() {
			return false
		}
	}
	if !good {
		j.blame(CodeBadTS, field)
		*to = instant{bad: true}
		return true
	}
	*to = instant{ms: ms, known: true}
	return true
}

// time settles when the event happened and judges it; it answers the code of the rule that is broken.
//
// With sent_at, a client's clock that is wrong is set right: the event happened sent_at − ts before it was sent, so that long
// before it was received. That holds only if the client's own clock makes sense of it: the event came before the sending, and
// within the late window. Otherwise, and in an import, ts stands on its own.
func (j *judge) time() string {
	if !j.ts.known {
		j.Time = j.now
		return ""
	}
	t := j.ts.ms
	sent := j.sent
	if !sent.known {
		sent = j.batchSent
	}
	if sent.known && !j.historical {
		if age := sent.ms - t; age >= 0 && age <= j.late {
			t = j.now - age
		}
	}
	j.Time = t
	switch {
	case t < oldest:
		return CodeTooOld
	case t > j.now+maxAhead.Milliseconds():
		return CodeInFuture
	case t < j.now-j.late && !j.historical:
		return CodeTooLate
	}
	return ""
}

// parseTime reads a time that was given as a string.
func parseTime(s string) (ms int64, ok bool) {
	if len(s) > 4 && s[4] == '-' {
		return parseRFC3339(s)
	}
	sc := scanner{b: []byte(s)}
	if len(s) > 64 {
		return 0, false
	}
	if _, _, ok := sc.number(); !ok || sc.i != len(s) {
		return 0, false
	}
	return parseUnix(s)
}

// parseUnix reads a JSON number as a unix time. Its magnitude tells the unit: below 1e11 seconds (until the year 5138), below
// 1e14 milliseconds (from March 1973), below 1e17 microseconds, else nanoseconds. What is finer than a millisecond is cut off,
// towards the past.
func parseUnix(lit string) (ms int64, ok bool) {
	if strings.IndexByte(lit, 'e') >= 0 || strings.IndexByte(lit, 'E') >= 0 {
		f, err := strconv.ParseFloat(lit, 64)
		if err != nil || math.Abs(f) >= 1<<63 {
			return 0, false
		}
		switch a := math.Abs(f); {
		case a < 1e11:
			f *= 1e3
		case a < 1e14:
		case a < 1e17:
			f /= 1e3
		default:
			f /= 1e6
		}
		return int64(math.Floor(f)), true
	}
	s, negative := strings.CutPrefix(lit, "-")
	whole, fraction, _ := strings.Cut(s, ".")
	if len(whole) > 19 {
		return 0, false
	}
	var n uint64
	for i := range len(whole) {
		n = n*10 + uint64(whole[i]-'0')
	}
	if n > math.MaxInt64 {
		return 0, false
	}
	v := int64(n)
	var rest bool // something was cut off
	switch {
	case v < 1e11:
		v *= 1000
		for i, unit := 0, int64(100); i < len(fraction); i, unit = i+1, unit/10 {
			v += int64(fraction[i]-'0') * unit
			rest = rest || unit == 0 && fraction[i] != '0'
		}
	case v < 1e14:
		rest = strings.Trim(fraction, "0") != ""
	case v < 1e17:
		rest = v%1000 != 0 || strings.Trim(fraction, "0") != ""
		v /= 1000
	default:
		rest = v%1_000_000 != 0 || strings.Trim(fraction, "0") != ""
		v /= 1_000_000
	}
	if negative {
		v = -v
		if rest {
			v--
		}
	}
	return v, true
}

// parseRFC3339 reads 2006-01-02T15:04:05.999Z07:00; t, z and a space between date and time are fine, a missing offset is not.
// A leap second is the second after it.
func parseRFC3339(s string) (ms int64, ok bool) {
	if len(s) < len("2006-01-02T15:04:05Z") || s[4] != '-' || s[7] != '-' || s[13] != ':' || s[16] != ':' ||
		s[10] != 'T' && s[10] != 't' && s[10] != ' ' {
		return 0, false
	}
	bad := false
	two := func(at int) int64 {
		a, b := s[at]-'0', s[at+1]-'0'
		bad = bad || a > 9 || b > 9
		return int64(a)*10 + int64(b)
	}
	year, month, day := two(0)*100+two(2), two(5), two(8)
	hour, minute, second := two(11), two(14), two(17)
	if bad || month < 1 || month > 12 || day < 1 || day > daysIn(year, month) || hour > 23 || minute > 59 || second > 60 {
		return 0, false
	}
	ms = (daysBefore(year, month, day)*86400 + hour*3600 + minute*60 + second) * 1000
	i := 19
	if s[i] == '.' {
		i++
		from := i
		for unit := int64(100); i < len(s) && s[i]-'0' <= 9; i, unit = i+1, unit/10 {
			ms += int64(s[i]-'0') * unit
		}
		if i == from {
			return 0, false
		}
	}
	switch rest := s[i:]; {
	case rest == "Z" || rest == "z":
		return ms, true
	case len(rest) == 6 && rest[3] == ':' && (rest[0] == '+' || rest[0] == '-'):
		h, m := two(i+1), two(i+4)
		if bad || h > 23 || m > 59 {
			return 0, false
		}
		offset := (h*60 + m) * 60_000
		if rest[0] == '-' {
			offset = -offset
		}
		return ms - offset, true
	}
	return 0, false
}

func daysIn(year, month int64) int64 {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// daysBefore is the number of days from 1970-01-01 to a date of the Gregorian calendar (Howard Hinnant's days_from_civil).
func daysBefore(year, month, day int64) int64 {
	if month <= 2 {
		year--
		month += 12
	}
	era := (year + 400) / 400 // years from 0 on only
	y := year - (era-1)*400
	return (era-1)*146097 + y*365 + y/4 - y/100 + (153*(month-3)+2)/5 + day - 1 - 719468
}
