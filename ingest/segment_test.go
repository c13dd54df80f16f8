package ingest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/event"
)

// segment judges a call and reads back from the chunk what was taken.
func segment(t testing.TB, call, body string, r Rules) ([]event.Event, Verdict, error) {
	t.Helper()
	if r.Now == 0 {
		r.Now = noon
	}
	var b event.Builder
	b.Reset("demo", r.Now, r.Historical, false)
	v, err := JudgeSegment([]byte(body), call, r, &b)
	if err != nil {
		return nil, v, err
	}
	if v.Received != v.Accepted+len(v.Rejected) || v.Accepted != b.Len() {
		t.Fatalf("received %d, accepted %d, rejected %d, in the chunk %d", v.Received, v.Accepted, len(v.Rejected), b.Len())
	}
	var rec event.Record
	if err := rec.Decode(event.AppendRecord(nil, event.Header{}, b.Bytes())); err != nil {
		t.Fatal(err)
	}
	return rec.Events, v, nil
}

// propsOf are an event's value and props in short: "=value key:kindvalue …".
func propsOf(e event.Event) string {
	var out []string
	if e.Value != "" {
		out = append(out, "="+e.Value)
	}
	for p := range e.Props.All() {
		out = append(out, p.Key+":"+string(rune(p.Kind))+p.Value)
	}
	return strings.Join(out, " ")
}

func TestSegmentCalls(t *testing.T) {
	f := func(call, body, want string) {
		t.Helper()
		events, v, err := segment(t, call, body, Rules{})
		got := summary(events, v)
		if err != nil {
			got = apperr.As(err).Code
		}
		if got != want {
			t.Errorf("%s %s\n got %s\nwant %s", call, body, got, want)
		}
	}
	f("track", `{"event":"Order Completed","userId":"u1","anonymousId":"a1","type":"page"}`, "Order Completed/u1")
	f("track", `{"event":"阅读","anonymousId":"a1","userId":null}`, "阅读/a1")
	f("track", `{"event":"e","userId":"","anonymousId":"a1"}`, "e/a1")
	f("track", `{"event":"e"}`, "e/")
	f("track", `{"\u0065vent":"\u0065","user\u0049d":"\u0075"}`, "e/u")
	f("page", "\ufeff {\"anonymousId\":\"a1\"} \n", "page_view/a1")
	f("page", `{"event":5,"userId":"u"}`, "page_view/u") // a page names no event
	f("screen", `{"userId":7}`, "screen_view/7")
	f("identify", `{"userId":"u","traits":{"email":"x"}}`, "identify/u")
	f("alias", `{"userId":"u","previousId":"a"}`, "alias/u")
	f("group", `{"userId":"u","groupId":"g"}`, "group/u")
	f("batch", `{"batch":[{"type":"track","event":"e","userId":"u"},{"userId":"v","type":"page"},{"type":"screen"},{"type":"identify","userId":"w"},
		{"type":"alias"},{"type":"group"}],"sentAt":null,"writeKey":"k","context":{"batch":[1]}}`, "e/u, page_view/v, screen_view/, identify/w, alias/, group/")
	f("import", `{"batch":[{"type":"page"}]}`, "page_view/")
	f("batch", `{"batch":[]}`, "")

	f("batch", `{"batch":[{"type":"Page"},{"event":"e"},{"type":5},{"type":null},{"type":"track"},1,{"type":"page","type":"page"},{"type":"page"}]}`,
		"page_view/, #0 bad_type type, #1 bad_type type, #2 bad_type type, #3 bad_type type, #4 missing_event event, #5 not_an_object, #6 duplicate_field type")
	f("track", `{"event":"","userId":"u"}`, "#0 missing_event event")
	f("track", `{"event":null}`, "#0 missing_event event")
	f("track", `{"event":["e"]}`, "#0 bad_event event")
	f("track", `{"event":"a\u0000"}`, "#0 bad_event event")
	f("track", `{"event":"$purchase"}`, "#0 reserved_event event")
	f("track", `{"event":"`+strings.Repeat("x", 65)+`"}`, "#0 too_long event")
	f("track", "{\"event\":\"a\xff\"}", "#0 bad_utf8 event")
	f("track", "{\"event\":\"e\",\"userId\":\"a\xff\",\"anonymousId\":\"a\"}", "#0 bad_utf8 userId")
	f("track", `{"event":"e","userId":"undefined","anonymousId":"a"}`, "#0 placeholder_user userId")
	f("track", `{"event":"e","userId":null,"anonymousId":"[object Object]"}`, "#0 placeholder_user anonymousId")
	f("track", `{"event":"e","userId":1.5}`, "#0 bad_user userId")
	f("track", `{"event":"e","userId":{}}`, "#0 bad_user userId")
	f("track", `{"event":"e","userId":"u","anonymousId":{}}`, "e/u") // it is not asked
	f("track", `{"event":"e","anonymousId":"`+strings.Repeat("x", 257)+`"}`, "#0 too_long anonymousId")
	f("track", `{"event":"e","messageId":""}`, "#0 bad_id messageId")
	f("track", `{"event":"e","messageId":"`+strings.Repeat("x", 129)+`"}`, "#0 too_long messageId")
	f("track", `{"event":"e","userId":"u","userId":"v"}`, "#0 duplicate_field userId")
	f("track", `{"event":"e","timestamp":"soon"}`, "#0 bad_ts timestamp")
	f("track", `{"event":"e","timestamp":null,"originalTimestamp":"soon"}`, "#0 bad_ts originalTimestamp")
	f("track", `{"event":"e","timestamp":"2020-01-01T00:00:00Z"}`, "#0 too_late timestamp")
	f("track", `{"event":"e","timestamp":"1970-01-01T00:00:00Z"}`, "#0 too_old timestamp")

	f("track", "", CodeEmptyBody)
	f("track", " \n", CodeEmptyBody)
	f("batch", "", CodeEmptyBody)
	f("track", `[{"event":"e"}]`, CodeBody)
	f("track", `{"event":"e"}{"event":"e"}`, CodeBody)
	f("track", `{"event":"e"`, CodeBody)
	f("track", `{"event":"e","properties":{"a":}}`, CodeBody)
	f("track", `"x"`, CodeBody)
	f("batch", `[{"type":"page"}]`, CodeBody)
	f("batch", `{"type":"page"}`, CodeBody)
	f("batch", `{"batch":{"type":"page"}}`, CodeBody)
	f("batch", `{"batch":[{"type":"page"}],"batch":[]}`, CodeBody)
	f("batch", `{"batch":[],"sentAt":1,"sentAt":2}`, CodeBody)
	f("batch", `{"batch":[{"type":"page"}]`, CodeBody)
	f("batch", `{"batch":[{"type":"page"}]}x`, CodeBody)
	f("batch", `{"batch":[{"type":"page"},]}`, CodeBody)
	f("batch", `{"batch":[{"type":"page"}],"sentAt":"soon"}`, CodeBadSentAt)
	f("batch", `{"batch":[`+strings.Repeat(`{"type":"page"},`, 5000)+`{"type":"page"}]}`, CodeTooMany)
}

// What a message's properties become. A property never costs the event.
func TestSegmentProperties(t *testing.T) {
	f := func(call, body, want string) {
		t.Helper()
		events, v, err := segment(t, call, body, Rules{})
		if err != nil || len(events) != 1 {
			t.Errorf("%s %.200s: %+v %v; want it taken", call, body, v, err)
			return
		}
		if got := propsOf(events[0]); got != want {
			t.Errorf("%s %.200s\n got %s\nwant %s", call, body, got, want)
		}
	}
	track := func(properties, want string) {
		t.Helper()
		f("track", `{"event":"e","properties":`+properties+`}`, want)
	}
	track(`{"a":"x","b":1.50,"c":true,"d":false,"e":null,"f":[1,{"x":2}],"g":""}`, "a:sx b:n1.50 c:t d:f g:s")
	track(`{"big":12345678901234567890}`, "big:n12345678901234567890") // digit for digit
	track(`{"cart":{"id":"c1","total":{"amount":5,"currency":"CNY"},"items":[1]},"x":1}`, "cart.id:sc1 cart.total.amount:n5 cart.total.currency:sCNY x:n1")
	track(`{"a.b":1,"a":{"b":2,"c":3},"a":{"c":4,"d":5}}`, "a.b:n1 a.c:n3 a.d:n5")
	track(`{"":1,"a":{"":2},"x\u0000":3,"y":{}}`, "")
	track("{\"a\":\"x\xff\",\"b\xff\":1,\"c\":\"\\ud83d\",\"d\":\"ok\"}", "d:sok")
	track(`{"a":1e999,"b":`+strings.Repeat("1", 1025)+`,"c":2}`, "c:n2")
	track(`"none"`, "")
	track(`[1]`, "")
	track(`null`, "")
	track(`{"t":"`+strings.Repeat("x", 1022)+`阅读"}`, "t:s"+strings.Repeat("x", 1022)) // cut between characters
	track(`{"t":"`+strings.Repeat("x", 1021)+`阅读"}`, "t:s"+strings.Repeat("x", 1021)+"阅")
	long := strings.Repeat("k", 64)
	track(`{"`+long+`":1,"`+long+`x":2,"`+long[:62]+`":{"a":3,"bc":4},"`+long[:63]+`":{"a":5}}`, long+":n1 "+long[:62]+".a:n3")
	var many, kept []string
	for i := range 40 {
		many = append(many, fmt.Sprintf(`"k%d":%d`, i, i))
		if i < 32 {
			kept = append(kept, fmt.Sprintf("k%d:n%d", i, i))
		}
	}
	track("{"+strings.Join(many, ",")+"}", strings.Join(kept, " "))
	track("{"+strings.Join(many, ",")+`,"revenue":7}`, "=7 "+strings.Join(kept, " "))
	deep := strings.Repeat(`{"a":`, 60) + "1" + strings.Repeat("}", 60)
	track(deep, "")

	track(`{"value":2.5}`, "=2.5 value:n2.5")
	track(`{"revenue":19.90}`, "=19.90 revenue:n19.90")
	track(`{"revenue":"19.90","value":2}`, "=2 revenue:s19.90 value:n2")
	track(`{"value":0,"revenue":3}`, "=0 value:n0 revenue:n3")
	track(`{"value":"2","revenue":"19.90"}`, "=19.90 value:s2 revenue:s19.90")
	track(`{"value":true,"revenue":"$5"}`, "value:t revenue:s$5")
	track(`{"value":1e999,"revenue":1e999}`, "")
	track(`{"value":null,"order":{"value":5}}`, "order.value:n5")

	f("identify", `{"userId":"u","traits":{"a":1},"properties":{"a":1,"value":5}}`, "")
	page := func(body, want string) {
		t.Helper()
		f("page", body, want)
		f("screen", body, want)
	}
	page(`{"properties":{"path":"/book/7","url":"https://shop.example/book/7?utm=x","referrer":"https://www.Search.example:443/q?s=x","search":"?utm=x","title":"T","value":3},
		"name":"Book","category":"Docs"}`, "=3 name:sBook category:sDocs title:sT value:n3 page:s/book/7 referrer:swww.search.example")
	page(`{"name":null,"properties":{"name":"N","url":"https://u:p@shop.example/a%20b#top"}}`, "name:sN page:s/a%20b")
	page(`{"properties":{"url":"https://shop.example?x=1"}}`, "page:s/")
	page(`{"properties":{"path":"/a?token=secret","referrer":"$direct"}}`, "page:s/a referrer:s$direct")
	page(`{"properties":{"path":5,"url":null,"page":"home","referrer":""}}`, "page:shome")
	page("{\"properties\":{\"path\":\"/\xff\",\"page\":\"/a\",\"referrer\":\"http://[::1]:80/\"}}", "page:s/a referrer:s[::1]")
	page("{\"properties\":{"+strings.Join(many, ",")+`,"path":"/last","referrer":"//r.example"}}`, strings.Join(kept[:30], " ")+" page:s/last referrer:sr.example")
	page(`{}`, "")
}

// TestID05_SegmentLongURL: a page view is counted, whatever its URL drags along.
func TestID05_SegmentLongURL(t *testing.T) {
	long := "https://shop.example/landing?gclid=" + strings.Repeat("y", 2900)
	for name, properties := range map[string]string{
		"url":          `{"url":"` + long + `","title":"T"}`,
		"path, search": `{"path":"/landing","url":"` + long + `","search":"` + long[28:] + `","referrer":"` + long + `"}`,
	} {
		events, v, err := segment(t, "page", `{"anonymousId":"a","properties":`+properties+`}`, Rules{})
		if err != nil || len(events) != 1 {
			t.Fatalf("%s: %+v %v", name, v, err)
		}
		if p, ok := events[0].Props.Get("page"); !ok || p.Value != "/landing" || events[0].User != "a" {
			t.Errorf("%s: %s", name, propsOf(events[0]))
		}
	}
	events, _, err := segment(t, "page", `{"properties":{"path":"/`+strings.Repeat("阅", 1000)+`"}}`, Rules{})
	if err != nil || len(events) != 1 {
		t.Fatalf("%v", err)
	}
	if p, _ := events[0].Props.Get("page"); p.Value != "/"+strings.Repeat("阅", 341) {
		t.Errorf("a long path: %q", p.Value)
	}
}

func TestID08_SegmentIntegersKeepTheirDigits(t *testing.T) {
	var body []string
	for _, user := range []string{"9007199254740992", "9007199254740993", "12345678", `"12345678"`} {
		body = append(body, `{"type":"identify","messageId":`+user+`,"userId":`+user+`}`)
	}
	events, v, err := segment(t, "batch", `{"batch":[`+strings.Join(body, ",")+`]}`, Rules{})
	if got, want := summary(events, v), "identify/9007199254740992, identify/9007199254740993, identify/12345678, identify/12345678"; err != nil || got != want {
		t.Errorf("got %s %v, want %s", got, err, want)
	}
	for _, e := range events {
		if e.ID != e.User {
			t.Errorf("id %q of user %q", e.ID, e.User)
		}
	}
}

// TestID09_SegmentOneMessageTooLarge: a message over the limit is named, the others are taken. A long property is cut before that.
func TestID09_SegmentOneMessageTooLarge(t *testing.T) {
	const good = `{"type":"track","event":"e","userId":"u"}`
	big := func(n int) string {
		return `{"type":"track","event":"e","userId":"u","messageId":"big","properties":{"p":"` + strings.Repeat("x", n) + `"}}`
	}
	_, v, err := segment(t, "batch", `{"batch":[`+good+","+big(2<<20)+","+good+`]}`, Rules{})
	if err != nil || v.Accepted != 2 || len(v.Rejected) != 1 {
		t.Fatalf("%+v %v", v, err)
	}
	if r := v.Rejected[0]; r.Index != 1 || r.ID != "big" || r.Code != CodeTooLarge || !strings.Contains(r.Detail, "65536") {
		t.Errorf("%+v", r)
	}
	events, v, err := segment(t, "batch", `{"batch":[`+good+","+big(60<<10)+","+good+`]}`, Rules{})
	if err != nil || v.Accepted != 3 || propsOf(events[1]) != "p:s"+strings.Repeat("x", 1024) {
		t.Errorf("60 KiB: %+v %v", v, err)
	}
}

func TestTS01_SegmentSkewedClock(t *testing.T) {
	f := func(call, body, want string) {
		t.Helper()
		events, v, err := segment(t, call, body, Rules{})
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
	const sent, at = `"sentAt":"2026-12-02T12:00:05Z"`, `"timestamp":"2026-12-02T11:59:50Z"`
	const right = "2026-11-30T11:59:45Z"
	f("page", `{`+sent+`,`+at+`}`, right)
	f("page", `{`+at+`,`+sent+`}`, right)
	f("batch", `{`+sent+`,"batch":[{"type":"page",`+at+`}]}`, right)
	f("batch", `{"batch":[{"type":"page",`+at+`}],`+sent+`}`, right)
	f("batch", `{"batch":[{"type":"page",`+at+`},{"type":"page","originalTimestamp":"2026-12-02T11:59:50Z"}],`+sent+`}`, right+" "+right)
	f("page", `{"timestamp":"2026-12-02T12:00:00Z"}`, "in_future") // (b)
	f("page", `{`+sent+`}`, "2026-11-30T12:00:00Z")
	// Its own sentAt counts before the batch's, timestamp before originalTimestamp.
	f("batch", `{"batch":[{"type":"page","timestamp":"2026-11-30T10:00:00Z","sentAt":"2026-11-30T11:00:00Z"}],`+sent+`}`, "2026-11-30T11:00:00Z")
	f("page", `{"originalTimestamp":"2026-11-30T09:00:00Z","timestamp":"2026-11-30T10:00:00Z"}`, "2026-11-30T10:00:00Z")
	f("page", `{"originalTimestamp":"2026-11-30T09:00:00Z","timestamp":null}`, "2026-11-30T09:00:00Z")
	f("page", `{"timestamp":"2026-11-30T11:00:00Z","sentAt":"soon"}`, "bad_ts")

	// An import with an admin key goes back as far as it likes, without correction.
	events, _, err := segment(t, "import", `{"batch":[{"type":"page","timestamp":"2015-05-17T10:00:00Z"}],"sentAt":"2015-05-17T10:00:05Z"}`, Rules{Historical: true})
	if err != nil || len(events) != 1 || time.UnixMilli(events[0].Time).UTC().Format(time.RFC3339) != "2015-05-17T10:00:00Z" {
		t.Errorf("import: %v %v", events, err)
	}
}

func TestTS02_SegmentUnitByMagnitude(t *testing.T) {
	received := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	var body []string
	for _, ts := range []string{"1796081400", "1796081400000", "1796081400000000", "1796081400000000000", `"2026-11-30T23:30:00.000Z"`} {
		body = append(body, `{"type":"page","timestamp":`+ts+`}`, `{"type":"page","originalTimestamp":`+ts+`}`)
	}
	events, v, err := segment(t, "batch", `{"batch":[`+strings.Join(body, ",")+`]}`, Rules{Now: received})
	if err != nil || len(events) != len(body) {
		t.Fatalf("%v %v", v, err)
	}
	for i, e := range events {
		if got := time.UnixMilli(e.Time).UTC().Format(time.RFC3339); got != "2026-11-30T23:30:00Z" {
			t.Errorf("event %d is at %s", i, got)
		}
	}
}

// The rules that do not stand in the body hold as well: a made-up user, a frequency rule.
func TestSegmentRules(t *testing.T) {
	r := Rules{
		Anonymous: func() string { return "anon" },
		Limited:   func(name string) bool { return name == "page_view" },
		Refused:   []int{2},
	}
	events, v, err := segment(t, "batch", `{"batch":[{"type":"page","userId":"u"},{"type":"screen"},{"type":"page","messageId":"m"}]}`, r)
	if got, want := summary(events, v), "page_view/u, screen_view/anon, #2 too_frequent"; err != nil || got != want || len(v.Limited) != 1 {
		t.Errorf("got %s %+v %v, want %s", got, v.Limited, err, want)
	}
}

func TestSegmentKey(t *testing.T) {
	f := func(body, want string) {
		t.Helper()
		if got := segmentKey([]byte(body)); got != want {
			t.Errorf("%s: got %q, want %q", body, got, want)
		}
	}
	f(`{"writeKey":"k"}`, "k")
	f("\ufeff { \"batch\" : [{\"writeKey\":\"no\"}] , \"writeKey\" : \"k\" , \"x\":", "k")
	f(`{"writeKey":null,"writeKey":"k"}`, "k")
	f(`{"writeKey":"a\u0000"}`, "")
	f(`{"batch":[{"writeKey":"no"}]}`, "")
	f(`[{"writeKey":"no"}]`, "")
	f(`{"a":,"writeKey":"no"}`, "")
	f(`{"a":1 "writeKey":"no"}`, "")
	f(`{`, "")
	f(``, "")
}

// FuzzJudgeSegment: no body makes JudgeSegment panic, its sums are right, and what it took keeps every rule when it is read back.
func FuzzJudgeSegment(f *testing.F) {
	for i, s := range []string{
		`{"event":"e","userId":9007199254740993,"messageId":"m","timestamp":"2026-11-30T08:00:00+08:00","properties":{"a":{"b":["x"],"c":1e400},"revenue":"5"}}`,
		`{"anonymousId":"a","name":"N","category":null,"properties":{"path":"/x?y","url":"https://a/b#c","referrer":"http://u@h:1/","search":"?","page":"p"}}`,
		`{"batch":[{"type":"track","event":"\u0065"},{"type":"page"},1,{"type":"x"}],"sentAt":"2026-11-30T12:00:00Z","writeKey":"k"}`,
		"{\"properties\":{\"a\":\"\xff\",\"\\ud83d\":1,\"\":{\"\":2},\"k\":{\"k\":{\"k\":\"v\"}}},\"originalTimestamp\":1796036400}",
	} {
		f.Add([]byte(s), byte(i))
		f.Add([]byte(s), byte(6)) // as a batch
	}
	f.Fuzz(func(t *testing.T, body []byte, call byte) {
		before := string(body)
		name := Calls[int(call)%len(Calls)]
		events, v, err := segment(t, name, string(body), Rules{})
		if segmentKey(body); string(body) != before {
			t.Fatal("the body was changed")
		}
		if err != nil {
			if e := apperr.As(err); e.Kind == apperr.Internal || e.Code == "" || e.Detail == "" {
				t.Fatalf("not an error for a client: %v", err)
			}
			return
		}
		if !json.Valid([]byte(strings.TrimPrefix(before, "\ufeff"))) {
			t.Fatalf("taken, but no JSON: %q", body)
		}
		if name != CallBatch && name != CallImport && v.Received != 1 {
			t.Fatalf("one call, %d received", v.Received)
		}
		for i := range events {
			mustBeGood(t, &events[i], false)
		}
	})
}
