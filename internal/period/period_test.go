package period

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/rollcall/rollcall/internal/apperr"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func at(t testing.TB, s string) time.Time {
	t.Helper()
	x, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return x.UTC()
}

func check(t *testing.T, b Bucket, label, from, to string) {
	t.Helper()
	if b.Label != label || !b.From.Equal(at(t, from)) || !b.To.Equal(at(t, to)) {
		t.Errorf("bucket %s [%v, %v), want %s [%s, %s)", b.Label, b.From, b.To, label, from, to)
	}
}

// tally counts instants by the label of their bucket.
func tally(kind Kind, loc *time.Location, instants ...time.Time) map[string]int {
	n := map[string]int{}
	for _, x := range instants {
		n[Of(kind, x, loc).Label]++
	}
	return n
}

func TestTZ02_HalfHourOffset(t *testing.T) {
	loc := zone(t, "Asia/Kolkata")
	a, b := at(t, "2026-11-29T18:15:00Z"), at(t, "2026-11-29T18:45:00Z")
	check(t, Of(Day, a, loc), "2026-11-29", "2026-11-28T18:30:00Z", "2026-11-29T18:30:00Z")
	check(t, Of(Day, b, loc), "2026-11-30", "2026-11-29T18:30:00Z", "2026-11-30T18:30:00Z")
	check(t, Of(Hour, a, loc), "2026-11-29T23:00+05:30", "2026-11-29T17:30:00Z", "2026-11-29T18:30:00Z")
	check(t, Of(Hour, b, loc), "2026-11-30T00:00+05:30", "2026-11-29T18:30:00Z", "2026-11-29T19:30:00Z")
}

func TestTZ04_SpringForward(t *testing.T) {
	loc := zone(t, "America/New_York")
	day := Of(Day, at(t, "2026-03-08T12:00:00Z"), loc)
	check(t, day, "2026-03-08", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z")
	hours, err := Range(Hour, day.From, day.To, loc, 100)
	if err != nil || len(hours) != 23 {
		t.Fatalf("%d hours, %v; want 23", len(hours), err)
	}
	views := 0
	for x := day.From; x.Before(day.To); x = x.Add(30 * time.Minute) {
		views++
		if b := Of(Hour, x, loc); b.Label[11:13] == "02" {
			t.Errorf("%v lies in %s, an hour that never was", x, b.Label)
		}
	}
	if views != 46 {
		t.Errorf("%d views, want 46", views)
	}
	next := day.Next(loc)
	if hours, err := Range(Hour, next.From, next.To, loc, 100); err != nil || len(hours) != 24 || next.Label != "2026-03-09" {
		t.Errorf("%s has %d hours, %v; want 2026-03-09 with 24", next.Label, len(hours), err)
	}
}

func TestTZ05_MidnightGap(t *testing.T) {
	loc := zone(t, "America/Santiago")
	check(t, Of(Day, at(t, "2026-09-06T03:30:00Z"), loc), "2026-09-05", "2026-09-05T04:00:00Z", "2026-09-06T04:00:00Z")
	check(t, Of(Day, at(t, "2026-09-06T04:10:00Z"), loc), "2026-09-06", "2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z")
	from, to, err := ParseRange("2026-09-06", "2026-09-07", loc)
	if err != nil || to.Sub(from) != 23*time.Hour || !from.Equal(at(t, "2026-09-06T04:00:00Z")) {
		t.Errorf("ParseRange = %v, %v, %v; want 23 h from 04:00Z", from, to, err)
	}
}

func TestTZ07_AutumnHasNoExtraDay(t *testing.T) {
	loc := zone(t, "America/New_York")
	from, to, err := ParseRange("2026-10-31", "2026-11-03", loc)
	if err != nil {
		t.Fatal(err)
	}
	days, err := Range(Day, from, to, loc, 100)
	if err != nil || len(days) != 3 {
		t.Fatalf("%d days, %v; want 3", len(days), err)
	}
	for i, want := range []int{24, 25, 24} {
		hours, err := Range(Hour, days[i].From, days[i].To, loc, 100)
		if err != nil || len(hours) != want {
			t.Errorf("%s has %d hours, %v; want %d", days[i].Label, len(hours), err, want)
		}
	}
	check(t, Of(Hour, at(t, "2026-11-01T05:10:00Z"), loc), "2026-11-01T01:00-04:00", "2026-11-01T05:00:00Z", "2026-11-01T06:00:00Z")
	check(t, Of(Hour, at(t, "2026-11-01T06:10:00Z"), loc), "2026-11-01T01:00-05:00", "2026-11-01T06:00:00Z", "2026-11-01T07:00:00Z")
}

func TestTZ08_LastWeek(t *testing.T) {
	week := Of(Week, at(t, "2026-11-30T08:00:00Z"), time.UTC).Prev(time.UTC)
	check(t, week, "2026-W48", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z")
	pv := 0
	for d := at(t, "2026-11-23T09:00:00Z"); d.Before(at(t, "2026-11-30T00:00:00Z")); d = d.Add(24 * time.Hour) {
		if week.Contains(d) {
			pv += 10
		}
	}
	if week.Contains(at(t, "2026-11-30T07:00:00Z")) {
		pv += 3
	}
	if pv != 70 {
		t.Errorf("PV %d, want 70", pv)
	}
}

func TestTZ09_ISOWeekYear(t *testing.T) {
	got := tally(Week, time.UTC, at(t, "2026-12-31T01:00:00Z"), at(t, "2027-01-01T01:00:00Z"), at(t, "2027-01-03T01:00:00Z"),
		at(t, "2027-01-04T01:00:00Z"), at(t, "2025-12-29T01:00:00Z"))
	if len(got) != 3 || got["2026-W53"] != 3 || got["2027-W01"] != 1 || got["2026-W01"] != 1 {
		t.Errorf("weeks %v, want 2026-W53: 3, 2027-W01: 1, 2026-W01: 1", got)
	}
}

func TestTZ11_TodayIsNotTheLast24Hours(t *testing.T) {
	loc := zone(t, "America/New_York")
	now := at(t, "2026-12-01T03:00:00Z")
	views := map[time.Time]int{at(t, "2026-11-29T23:00:00-05:00"): 5, at(t, "2026-11-30T09:00:00-05:00"): 18, at(t, "2026-11-30T20:00:00-05:00"): 8}
	f := func(name string, want int) {
		t.Helper()
		from, to, err := Named(name, now, loc)
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for x, n := range views {
			if !x.Before(from) && x.Before(to) {
				got += n
			}
		}
		if got != want {
			t.Errorf("%s = [%v, %v): %d views, want %d", name, from, to, got, want)
		}
	}
	f("today", 26)
	f("1d", 26)
	f("yesterday", 5)
	f("7d", 31)
	f("30d", 31)
	for _, name := range []string{"", "d", "0d", "401d", "-1d", "24h", "tomorrow", "7dd", "9999999999999999999d"} {
		if _, _, err := Named(name, now, loc); apperr.As(err).Code != "bad_period" {
			t.Errorf("Named(%q): %v, want bad_period", name, err)
		}
	}
}

func TestTZ15_MonthsClamp(t *testing.T) {
	f := func(day string, n int, want string) {
		t.Helper()
		x := at(t, day+"T00:00:00Z")
		y, m, d := AddMonths(x.Year(), x.Month(), x.Day(), n)
		if got := time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Format(time.DateOnly); got != want {
			t.Errorf("%s %+d months = %s, want %s", day, n, got, want)
		}
	}
	f("2026-12-31", -1, "2026-11-30")
	f("2026-03-31", -1, "2026-02-28")
	f("2026-01-31", 1, "2026-02-28")
	f("2028-02-29", 12, "2029-02-28")
	f("2028-01-31", 1, "2028-02-29")
	f("2026-01-31", -13, "2024-12-31")
	for day, want := range map[string]string{"2026-12-31T23:00:00Z": "2026-11", "2026-03-31T23:00:00Z": "2026-02"} {
		if got := Of(Month, at(t, day), time.UTC).Prev(time.UTC).Label; got != want {
			t.Errorf("the month before %s is %s, want %s", day, got, want)
		}
	}
	if got := Of(Month, at(t, "2026-01-31T12:00:00Z"), time.UTC).Next(time.UTC).Label; got != "2026-02" {
		t.Errorf("the month after January is %s", got)
	}
}

func TestOddZones(t *testing.T) {
	apia := zone(t, "Pacific/Apia") // had no 2011-12-30
	check(t, Of(Day, at(t, "2011-12-30T09:59:59Z"), apia), "2011-12-29", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z")
	check(t, Of(Day, at(t, "2011-12-30T10:00:00Z"), apia), "2011-12-31", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z")
	if from, to, err := ParseRange("2011-12-29", "2011-12-30", apia); err != nil || to.Sub(from) != 24*time.Hour {
		t.Errorf("29 to 30 December in Apia: %v, %v, %v", from, to, err)
	}
	if _, _, err := ParseRange("2011-12-30", "2011-12-31", apia); apperr.As(err).Code != "empty_range" {
		t.Errorf("30 December in Apia: %v, want empty_range", err)
	}
	howe := zone(t, "Australia/Lord_Howe") // moves by 30 minutes
	check(t, Of(Hour, at(t, "2026-04-04T14:40:00Z"), howe), "2026-04-05T01:00+11:00", "2026-04-04T14:00:00Z", "2026-04-04T15:00:00Z")
	check(t, Of(Hour, at(t, "2026-04-04T15:10:00Z"), howe), "2026-04-05T01:30+10:30", "2026-04-04T15:00:00Z", "2026-04-04T15:30:00Z")
	check(t, Of(Hour, at(t, "2026-10-03T15:40:00Z"), howe), "2026-10-04T02:30+11:00", "2026-10-03T15:30:00Z", "2026-10-03T16:00:00Z")
	johns := zone(t, "America/St_Johns") // in 2010 the clock went from 00:01 back to 23:01
	check(t, Of(Day, at(t, "2010-11-07T02:45:00Z"), johns), "2010-11-07", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z")
	check(t, Of(Hour, at(t, "2010-11-07T02:45:00Z"), johns), "2010-11-06T23:01-03:30", "2010-11-07T02:31:00Z", "2010-11-07T03:30:00Z")
	monrovia := zone(t, "Africa/Monrovia") // 44 minutes and 30 seconds until 1972
	check(t, Of(Hour, at(t, "1971-06-01T00:44:30Z"), monrovia), "1971-06-01T00:00:00-00:44:30", "1971-06-01T00:44:30Z", "1971-06-01T01:44:30Z")
}

var oddZones = []string{"UTC", "Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe", "America/Santiago", "America/New_York", "Africa/Cairo",
	"Pacific/Apia", "Asia/Shanghai", "America/St_Johns", "Africa/Monrovia", "Pacific/Kwajalein", "Asia/Pyongyang", "Antarctica/Troll",
	"Africa/Casablanca", "Europe/London", "America/Sao_Paulo", "Asia/Beirut", "Asia/Gaza", "Pacific/Chatham", "Europe/Dublin", "America/Scoresbysund"}

// edges are instants around every change of the zone's clock, and random ones.
func edges(loc *time.Location, seed uint64) []time.Time {
	rnd := rand.New(rand.NewPCG(seed, 1))
	var out []time.Time
	begin, end := time.Date(1971, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	for x := begin.In(loc); ; {
		_, next := x.ZoneBounds()
		if next.IsZero() || next.After(end) {
			break
		}
		for _, d := range []time.Duration{-25 * time.Hour, -time.Hour, -time.Nanosecond, 0, time.Second, 30 * time.Minute, time.Hour, 23 * time.Hour} {
			out = append(out, next.Add(d))
		}
		x = next
	}
	for range 300 {
		out = append(out, begin.Add(time.Duration(rnd.Int64N(int64(end.Sub(begin))))))
	}
	return out
}

func TestBucketsTileTime(t *testing.T) {
	for i, name := range oddZones {
		loc := zone(t, name)
		for _, x := range edges(loc, uint64(i)) {
			for _, kind := range []Kind{Hour, Day, Week, Month} {
				b := Of(kind, x, loc)
				next, prev := b.Next(loc), b.Prev(loc)
				if !b.Contains(x) || !b.From.Before(b.To) {
					t.Fatalf("%s: %v is not in its %s %v", name, x, kind, b)
				}
				if !next.From.Equal(b.To) || !prev.To.Equal(b.From) || next.Prev(loc) != b || prev.Next(loc) != b {
					t.Fatalf("%s: %s gap or overlap around %v: %v | %v | %v", name, kind, x, prev, b, next)
				}
				if next.Label <= b.Label && (kind != Hour || next.Label == b.Label) {
					t.Fatalf("%s: %s after %s", name, next.Label, b.Label)
				}
				if Of(kind, b.From, loc) != b || Of(kind, b.To.Add(-1), loc) != b {
					t.Fatalf("%s: the ends of %v lie elsewhere", name, b)
				}
			}
			day := Of(Day, x, loc)
			if got := day.From.In(loc).Format(time.DateOnly); got != day.Label {
				t.Fatalf("%s: day %s begins on %s", name, day.Label, got)
			}
			if before := day.From.Add(-1).In(loc).Format(time.DateOnly); before >= day.Label {
				t.Fatalf("%s: day %s had begun at %v", name, day.Label, day.From.Add(-1).In(loc))
			}
			hour := Of(Hour, x, loc)
			if hour.From.Before(day.From) || hour.To.After(day.To) || hour.To.Sub(hour.From) > time.Hour {
				t.Fatalf("%s: hour %v reaches out of day %v", name, hour, day)
			}
			for _, kind := range []Kind{Week, Month} {
				if big := Of(kind, x, loc); day.From.Before(big.From) || day.To.After(big.To) {
					t.Fatalf("%s: day %v reaches out of %v", name, day, big)
				}
			}
		}
	}
}

func TestHourFieldsDifferInADay(t *testing.T) {
	for i, name := range oddZones {
		loc := zone(t, name)
		for _, x := range edges(loc, uint64(i)) {
			day := Of(Day, x, loc)
			hours, err := Range(Hour, day.From, day.To, loc, 60)
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for _, h := range hours {
				f := HourField(h.Label, day.Label)
				if seen[f] {
					t.Fatalf("%s: two hours %s on %s", name, f, day.Label)
				}
				seen[f] = true
			}
		}
	}
}

func TestCutterAgreesWithOf(t *testing.T) {
	for i, name := range oddZones {
		loc := zone(t, name)
		c := NewCutter(loc)
		list := edges(loc, uint64(i))
		rnd := rand.New(rand.NewPCG(uint64(i), 2))
		rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		list = append(list, list[:200]...)
		for k, x := range list {
			if k%3 == 0 {
				x = x.Add(time.Duration(rnd.IntN(7200)) * time.Second)
			}
			s := c.Cut(x.UnixMilli())
			h, d := Of(Hour, x, loc), Of(Day, x, loc)
			if s.From != h.From.UnixMilli() || s.To != h.To.UnixMilli() || s.Label != h.Label ||
				s.Day.From != d.From.UnixMilli() || s.Day.To != d.To.UnixMilli() || s.Day.Label != d.Label {
				t.Fatalf("%s %v: slot %+v in %+v, want %v in %v", name, x, *s, *s.Day, h, d)
			}
			if again := c.Cut(s.From); again != s {
				t.Fatalf("%s %v: another pointer for the same hour", name, x)
			}
		}
	}
}

func TestCutterIsBounded(t *testing.T) {
	c := NewCutter(time.UTC)
	for h := range int64(3 * maxSlots) {
		if s := c.Cut(h*3_600_000 + 5); s.From != h*3_600_000 {
			t.Fatalf("hour %d: slot from %d", h, s.From)
		}
	}
	if len(c.hours) > maxSlots || len(c.quarters) > 4*maxSlots || len(c.days) > maxSlots {
		t.Errorf("%d hours, %d quarters, %d days kept, want at most %d hours", len(c.hours), len(c.quarters), len(c.days), maxSlots)
	}
	if s := c.Cut(-1); s.Label != "1969-12-31T23:00+00:00" {
		t.Errorf("the hour before 1970 is %s", s.Label)
	}
}

func TestRangeAndParseErrors(t *testing.T) {
	from, to := at(t, "2026-01-01T00:00:00Z"), at(t, "2026-01-02T00:00:00Z")
	f := func(err error, code string) {
		t.Helper()
		var e *apperr.Error
		if !errors.As(err, &e) || e.Kind != apperr.Invalid || e.Code != code {
			t.Errorf("error %v, want %s", err, code)
		}
	}
	_, err := Range(Hour, from, to, time.UTC, 23)
	f(err, "too_many_buckets")
	_, err = Range(Hour, to, to, time.UTC, 23)
	f(err, "empty_range")
	_, _, err = ParseRange("2026-01-02", "2026-01-01", time.UTC)
	f(err, "empty_range")
	for _, s := range []string{"", "2026-02-30", "2026-1-1", "yesterday", "2026-01-01T00:00:00", "0001-01-01", "9999-12-31T00:00:00Z", "1767225600"} {
		_, _, err = ParseRange(s, "2027-01-01", time.UTC)
		f(err, "bad_time")
		_, _, err = ParseRange("2025-01-01", s, time.UTC)
		f(err, "bad_time")
	}
	_, err = ParseKind("year")
	f(err, "bad_interval")
	for k := Hour; k <= Month; k++ {
		if got, err := ParseKind(k.String()); got != k || err != nil {
			t.Errorf("ParseKind(%q) = %v, %v", k, got, err)
		}
	}
	if hours, err := Range(Hour, from.Add(time.Minute), from.Add(2*time.Hour+1), time.UTC, 3); err != nil || len(hours) != 3 {
		t.Errorf("%d hours, %v; want the 3 that overlap", len(hours), err)
	}
}

func BenchmarkCut(b *testing.B) {
	loc := zone(b, "Asia/Kolkata")
	times := make([]int64, 4096)
	for i := range times {
		times[i] = 1_796_000_000_000 + rand.Int64N(3*86_400_000)
	}
	c := NewCutter(loc)
	b.Run("mixed over 3 days", func(b *testing.B) {
		for i := range b.N {
			c.Cut(times[i&4095])
		}
	})
	b.Run("one hour", func(b *testing.B) {
		for i := range b.N {
			c.Cut(1_796_000_000_000 + int64(i&1023))
		}
	})
}
