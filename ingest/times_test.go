package ingest

import (
	"strings"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/apperr"
)

func TestTimes(t *testing.T) {
	f := func(ts string, r Rules, want string) {
		t.Helper()
		events, v, err := judged(t, `{"event":"e","ts":`+ts+`}`, r)
		got := ""
		switch {
		case err != nil:
			got = err.Error()
		case len(events) == 1:
			got = time.UnixMilli(events[0].Time).UTC().Format("2006-01-02T15:04:05.000")
		default:
			got = v.Rejected[0].Code
		}
		if got != want {
			t.Errorf("ts %s: got %s, want %s", ts, got, want)
		}
	}
	live, history := Rules{}, Rules{Historical: true}
	f(`null`, live, "2026-11-30T12:00:00.000")
	f(`"2026-11-30T08:00:00+08:00"`, live, "2026-11-30T00:00:00.000")
	f(`"2026-11-30T08:00:00.123456789-03:30"`, live, "2026-11-30T11:30:00.123")
	f(`"2026-11-30t08:00:00.5z"`, live, "2026-11-30T08:00:00.500")
	f(`"2026-11-30 08:00:00Z"`, live, "2026-11-30T08:00:00.000")
	f(`"2026-11-29T23:59:60Z"`, live, "2026-11-30T00:00:00.000")
	f(`"2026-11-30T08:00:00"`, live, "bad_ts")
	f(`"2026-11-30"`, live, "bad_ts")
	f(`"2026-11-31T08:00:00Z"`, live, "bad_ts")
	f(`"2026-02-29T08:00:00Z"`, live, "bad_ts")
	f(`"2026-13-01T08:00:00Z"`, live, "bad_ts")
	f(`"2026-11-30T24:00:00Z"`, live, "bad_ts")
	f(`"2026-11-30T08:60:00Z"`, live, "bad_ts")
	f(`"2026-11-30T08:00:00.Z"`, live, "bad_ts")
	f(`"2026-11-30T08:00:00+0800"`, live, "bad_ts")
	f(`"2026-11-30T08:00:00+08:00 "`, live, "bad_ts")
	f(`"2026-11-30T08:00:00+24:00"`, live, "bad_ts")
	f(`"yesterday"`, live, "bad_ts")
	f(`""`, live, "bad_ts")
	f(`true`, live, "bad_ts")
	f(`{}`, live, "bad_ts")
	f(`"1796036400"`, live, "2026-11-30T11:00:00.000")
	f(`"1796036400 "`, live, "bad_ts")
	f(`"01796036400"`, live, "bad_ts")
	f(`1796036400.1239`, live, "2026-11-30T11:00:00.123")
	f(`1.7960364e9`, live, "2026-11-30T11:00:00.000")
	f(`1.7960364E+12`, live, "2026-11-30T11:00:00.000")
	f(`1796036400000.9`, live, "2026-11-30T11:00:00.000")
	f(`1796036400000999`, live, "2026-11-30T11:00:00.000")
	f(`99999999999999999999`, live, "bad_ts")
	f(`9223372036854775808`, live, "bad_ts")
	f(`1e300`, live, "bad_ts")
	f(`1e400`, live, "bad_ts")
	f(`0`, live, "too_old")
	f(`-1`, live, "too_old")
	f(`"2026-11-23T12:00:00Z"`, live, "2026-11-23T12:00:00.000")
	f(`"2026-11-23T11:59:59.999Z"`, live, "too_late")
	f(`"2026-11-23T11:59:59.999Z"`, Rules{LateWindow: 8 * 24 * time.Hour}, "2026-11-23T11:59:59.999")
	f(`"2026-11-30T12:10:00Z"`, live, "2026-11-30T12:10:00.000")
	f(`"2026-11-30T12:10:00.001Z"`, live, "in_future")
	f(`"2015-05-17T10:05:03Z"`, history, "2015-05-17T10:05:03.000")
	f(`"2015-05-17T10:05:03Z"`, live, "too_late")
	f(`"1971-01-01T00:00:00Z"`, history, "1971-01-01T00:00:00.000")
	f(`"1970-12-31T23:59:59.999Z"`, history, "too_old")
	f(`"2026-11-30T12:10:00.001Z"`, history, "in_future")
	f(`"0000-01-01T00:00:00Z"`, history, "too_old")
}

// TestRFC3339AgainstTime compares with the standard library over many instants and offsets.
func TestRFC3339AgainstTime(t *testing.T) {
	for _, zone := range []*time.Location{time.UTC, time.FixedZone("", 5*3600+1800), time.FixedZone("", -12*3600)} {
		for day := int64(-719000); day < 2_900_000; day += 97 {
			at := time.Unix(day*86400+day%86400, 123_456_789).In(zone)
			if at.Year() < 0 || at.Year() > 9999 {
				continue
			}
			s := at.Format(time.RFC3339Nano)
			if got, ok := parseRFC3339(s); !ok || got != at.UnixMilli() {
				t.Fatalf("%s: got %d %v, want %d", s, got, ok, at.UnixMilli())
			}
		}
	}
}

func TestUnixFloors(t *testing.T) {
	f := func(lit string, want int64) {
		t.Helper()
		if got, ok := parseUnix(lit); !ok || got != want {
			t.Errorf("%s: got %d %v, want %d", lit, got, ok, want)
		}
	}
	f("-0.0001", -1)
	f("-1.5", -1500)
	f("-1.5e0", -1500)
	f("-100000000000000001", -100000000001)
	f("-1", -1000)
	f("99999999999", 99999999999000)
	f("100000000000", 100000000000)
	f("99999999999999", 99999999999999)
	f("100000000000000", 100000000000)
	f("99999999999999999", 99999999999999)
	f("100000000000000000", 100000000000)
}

func TestTS01_SkewedClock(t *testing.T) {
	f := func(body, want string) {
		t.Helper()
		events, v, err := judged(t, body, Rules{})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, e := range events {
			got += time.UnixMilli(e.Time).UTC().Format(time.RFC3339) + " "
		}
		for _, r := range v.Rejected {
			got += r.Code + " "
		}
		if got = strings.TrimSpace(got); got != want {
			t.Errorf("%s\n got %s\nwant %s", body, got, want)
		}
	}
	const sent, at = `"sent_at":"2026-12-02T12:00:05Z"`, `"ts":"2026-12-02T11:59:50Z"`
	const right = "2026-11-30T11:59:45Z"
	f(`{`+sent+`,"events":[{"event":"e",`+at+`}]}`, right)
	f(`{"events":[{"event":"e",`+at+`}],`+sent+`}`, right) // sent_at after the events
	f(`{"event":"e",`+at+`,`+sent+`}`, right)              // beside one event
	f(`{"event":"e",`+at+`,`+sent+"}\n{\"event\":\"e\","+sent+`,`+at+`}`, right+" "+right)
	f(`{"event":"e","ts":"2026-12-02T12:00:00Z"}`, "in_future") // (b)
	f(`{"event":"e",`+sent+`}`, "2026-11-30T12:00:00Z")         // no ts: receive time
	// Corrections that make no sense are not made: sent before it happened, or longer ago than the late window.
	f(`{"event":"e","ts":"2026-11-30T11:00:00Z","sent_at":"2026-11-30T10:59:59Z"}`, "2026-11-30T11:00:00Z")
	f(`{"event":"e","ts":"2026-11-30T11:00:00Z","sent_at":"2100-01-01T00:00:00Z"}`, "2026-11-30T11:00:00Z")
	f(`{"event":"e","ts":"1970-01-01T00:05:00Z","sent_at":"1970-01-01T00:06:00Z"}`, "2026-11-30T11:59:00Z")
	// Its own sent_at counts before the batch's.
	f(`{`+sent+`,"events":[{"event":"e","ts":"2026-11-30T10:00:00Z","sent_at":"2026-11-30T11:00:00Z"}]}`, "2026-11-30T11:00:00Z")
	f(`{"event":"e","ts":"2026-11-30T11:00:00Z","sent_at":"soon"}`, "bad_ts")

	for _, body := range []string{`{"events":[{"event":"e"}],"sent_at":"soon"}`, `{"user":5.5,"sent_at":{},"events":[{"event":"e"}]}`} {
		if _, _, err := judged(t, body, Rules{}); apperr.As(err).Code != CodeBadSentAt {
			t.Errorf("%s: %v, want %s", body, err, CodeBadSentAt)
		}
	}
	if _, _, err := judged(t, `{"event":5,"sent_at":1,"sent_at":2,"events":[]}`, Rules{}); err != nil {
		t.Errorf("beside event it is no envelope: %v", err)
	}
	if _, _, err := judged(t, `{"sent_at":1,"sent_at":2,"events":[]}`, Rules{}); apperr.As(err).Code != CodeBody {
		t.Errorf("sent_at twice: %v", err)
	}
	// An import's times are not touched.
	events, _, err := judged(t, `{"event":"e","ts":"2026-11-29T11:00:00Z","sent_at":"2026-11-29T11:00:05Z"}`, Rules{Historical: true})
	if err != nil || len(events) != 1 || time.UnixMilli(events[0].Time).UTC().Format(time.RFC3339) != "2026-11-29T11:00:00Z" {
		t.Errorf("import: %v %v", events, err)
	}
}

func TestTS02_UnitByMagnitude(t *testing.T) {
	received := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	body := ""
	for _, ts := range []string{"1796081400", "1796081400000", "1796081400000000", "1796081400000000000"} {
		body += `{"event":"e","ts":` + ts + "}\n"
	}
	events, v, err := judged(t, body, Rules{Now: received})
	if err != nil || len(events) != 4 {
		t.Fatalf("%v %v", v, err)
	}
	for i, e := range events {
		if got := time.UnixMilli(e.Time).UTC().Format(time.RFC3339); got != "2026-11-30T23:30:00Z" {
			t.Errorf("event %d is at %s", i, got)
		}
	}
}

// TestTS04_LateEvents: three days late is taken under its own time. Where lateness is capped it is refused, with the reason.
func TestTS04_LateEvents(t *testing.T) {
	r := Rules{Now: time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC).UnixMilli()}
	const e1 = `{"id":"e1","event":"e","ts":"2026-11-27T10:00:00Z"}`
	events, v, err := judged(t, e1, r)
	if err != nil || len(events) != 1 || events[0].Time != time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC).UnixMilli() {
		t.Errorf("%+v %+v %v; want e1 at its own time", events, v, err)
	}
	r.LateWindow = 48 * time.Hour
	events, v, err = judged(t, e1, r)
	if got, want := summary(events, v), "#0 too_late ts"; err != nil || got != want || v.Rejected[0].ID != "e1" {
		t.Errorf("with a window of 48 h: got %s %v, want %s", got, err, want)
	}
}

func TestEX04_TimesThatWouldWrap(t *testing.T) {
	for _, r := range []Rules{{}, {Historical: true}} {
		events, v, err := judged(t, `[{"event":"e","ts":"1930-06-01T00:00:00Z"},{"event":"e","ts":"2120-01-01T00:00:00Z"},{"event":"e","ts":-1249171200},{"event":"e","ts":4733510400}]`, r)
		want := "#0 too_old ts, #1 in_future ts, #2 too_old ts, #3 in_future ts"
		if got := summary(events, v); err != nil || got != want {
			t.Errorf("got %s %v, want %s", got, err, want)
		}
	}
}
