package ingest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/event"
)

// noon is the receive time of the tests: 2026-11-30T12:00:00Z.
var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).UnixMilli()

// judged judges a body and reads back from the chunk what was taken.
func judged(t testing.TB, body string, r Rules) ([]event.Event, Verdict, error) {
	t.Helper()
	if r.Now == 0 {
		r.Now = noon
	}
	var b event.Builder
	b.Reset("demo", r.Now, r.Historical, false)
	v, err := Judge([]byte(body), r, &b)
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

// summary is a verdict in short: "name/user" for what was taken, then "#index code field" for what was not.
func summary(events []event.Event, v Verdict) string {
	var out []string
	for _, e := range events {
		out = append(out, e.Name+"/"+e.User)
	}
	for _, r := range v.Rejected {
		out = append(out, strings.TrimSpace(fmt.Sprintf("#%d %s %s", r.Index, r.Code, r.Field)))
	}
	return strings.Join(out, ", ")
}

func TestForms(t *testing.T) {
	f := func(name, body, want string) {
		t.Helper()
		events, v, err := judged(t, body, Rules{})
		got := summary(events, v)
		if err != nil {
			got = apperr.As(err).Code
		}
		if got != want {
			t.Errorf("%s: %q\n got %s\nwant %s", name, body, got, want)
		}
	}
	const a, b = `{"event":"a","user":"1"}`, `{"event":"b","user":"2"}`
	f("one", a, "a/1")
	f("one, over several lines", "\r\n{\n  \"event\": \"a\",\n  \"user\": \"1\",\n  \"props\":\n  {\n  }\n}\n", "a/1")
	f("byte order mark", "\ufeff"+a, "a/1")
	f("array", "["+a+","+b+"]", "a/1, b/2")
	f("array over lines", "[\n"+a+",\n"+b+"\n]\n", "a/1, b/2")
	f("empty array", " [ ] ", "")
	f("no objects in an array", `[1,"x",null,[{}],`+a+`]`, "a/1, #0 not_an_object, #1 not_an_object, #2 not_an_object, #3 not_an_object")
	f("envelope", `{"events":[`+a+","+b+`],"sent_at":null,"sdk":{"v":[1]}}`, "a/1, b/2")
	f("envelope over lines", "{\"events\":[\n"+a+",\n"+b+"\n]}", "a/1, b/2")
	f("empty envelope", `{"events":[]}`, "")
	f("events beside event is an unknown field", `{"events":[1],"event":"a"}`, "a/")
	f("events that is no array is an unknown field", `{"events":{}}`, "#0 missing_event event")
	f("lines", a+"\n"+b, "a/1, b/2")
	f("lines, CR LF, blanks", "\n"+a+"\r\n\r\n  \n "+b+"\r\n\n", "a/1, b/2")
	f("bad line in the middle", a+"\n{\"event\":\n"+b+"\n", "a/1, b/2, #1 malformed")
	f("bad lines first and last", "not json\n"+a+"\nalso not\n"+b+"\n{", "a/1, b/2, #0 malformed, #2 malformed, #4 malformed")
	f("first line cut off", `{"event":"x"`+"\n"+a, "a/1, #0 malformed")
	f("first line cut off in a string", `{"event":"x`+"\n"+a+"\n", "a/1, #0 malformed")
	f("lines that are no objects", a+"\n1\n[]\n\"x\"\n"+b, "a/1, b/2, #1 not_an_object, #2 not_an_object, #3 not_an_object")
	f("comma after each line", a+",\n"+b, "b/2, #0 malformed")
	f("objects in one line", a+b+" "+a, "a/1, b/2, a/1")
	f("a line is taken as a whole or not", a+b+"x\n"+a, "a/1, #0 malformed")
	f("objects that span lines", "{\n\"event\":\"a\"}\n{\n\"event\":\"b\"\n}", "a/, b/")
	f("an envelope among lines", a+"\n"+`{"events":[`+b+"]}\n", "a/1, #1 missing_event event")
	f("keys with escapes", `{"\u0065vent":"a","us\u0065r":"1","\ud83d":1}`, "a/1")

	f("empty", "", "empty_body")
	f("blank", " \n\t\r\n", "empty_body")
	for name, body := range map[string]string{
		"cut array":                    "[" + a + ",",
		"comma at the end":             "[" + a + ",]",
		"no comma":                     "[" + a + b + "]",
		"two arrays":                   "[" + a + "][" + b + "]",
		"array, then lines":            "[" + a + "]\n" + b,
		"cut object":                   `{"event":"a","user"`,
		"cut string":                   `{"event":"a`,
		"broken object over lines":     "{\n  \"event\": \"a\",\n  \"user\": x\n}",
		"broken, props at the margin":  "{\n\"event\": oops,\n\"props\":\n{\"event\":\"b\"}\n}",
		"broken envelope over lines":   "{\"sent_at\":oops,\n\"events\":[\n" + a + "\n]}",
		"envelope cut in its events":   "{\"events\":[\n" + a + ",\n" + b + "\n",
		"envelope, then more":          `{"events":[` + a + "]}\n" + b,
		"events twice":                 `{"events":[],"events":[` + a + "]}",
		"spanning objects, one broken": "{\n\"event\":\"a\"}\n{\n\"event\":\n}",
		"trailing comma in an object":  `{"event":"a",}`,
		"NaN":                          `{"event":"a","value":NaN}`,
		"single quotes":                `{'event':'a'}`,
		"comment":                      `{"event":"a"/**/}`,
		"leading zero":                 `{"event":"a","value":01}`,
		"plus":                         `{"event":"a","value":+1}`,
		"point at the end":             `{"event":"a","value":1.}`,
		"control character":            "{\"event\":\"a\tb\"}",
		"bad escape":                   `{"event":"\x41"}`,
		"short unicode escape":         `{"event":"\u12"}`,
		"a string":                     `"event"`,
		"a number":                     `12`,
		"NUL":                          "\x00",
		"UTF-16":                       "\xff\xfe{\x00",
		"too deep":                     `{"event":"a","x":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + "}",
	} {
		f(name, body, "malformed_body")
	}
	f("deep", `{"event":"a","x":`+strings.Repeat("[", 64)+strings.Repeat("]", 64)+"}", "a/")
	_, _, err := judged(t, `{"event":"a","x":`+strings.Repeat("[", 65)+"1", Rules{})
	if got := err.Error(); !strings.Contains(got, "a value is nested deeper than 64 (byte 82)") {
		t.Error("a body nested too deep:", got)
	}
}

func TestFields(t *testing.T) {
	f := func(fields, want string) {
		t.Helper()
		body := `{"event":"e",` + fields + `}`
		if strings.HasPrefix(fields, `"event"`) || fields == "" {
			body = "{" + fields + "}"
		}
		events, v, err := judged(t, body, Rules{})
		got := summary(events, v)
		if err != nil {
			got = apperr.As(err).Code
		}
		for _, e := range events {
			if e.ID != "" {
				got += " id=" + e.ID
			}
			if e.Value != "" {
				got += " value=" + e.Value
			}
			for p := range e.Props.All() {
				got += fmt.Sprintf(" %s:%c:%s", p.Key, p.Kind, p.Value)
			}
		}
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", fields, got, want)
		}
	}
	long := func(n int) string { return strings.Repeat("é", n/2) + strings.Repeat("x", n%2) }

	f(``, "#0 missing_event event")
	f(`"event":null`, "#0 missing_event event")
	f(`"event":""`, "#0 missing_event event")
	f(`"event":5`, "#0 bad_event event")
	f(`"event":["e"]`, "#0 bad_event event")
	f(`"event":"阅读 \u9605\"\\\/"`, `阅读 阅"\//`)
	f(`"event":"a\nb"`, "#0 bad_event event")
	f(`"event":"a\u007fb"`, "#0 bad_event event")
	f(`"event":"a`+"\x7f"+`"`, "#0 bad_event event")
	f(`"event":"a\u0085b"`, "#0 bad_event event")
	f(`"event":"`+"\u0085"+`"`, "#0 bad_event event")
	f(`"event":"`+long(64)+`"`, long(64)+"/")
	f(`"event":"`+long(65)+`"`, "#0 too_long event")
	f(`"event":"$signin"`, "$signin/")
	f(`"event":"$makeup"`, "$makeup/")
	f(`"event":"$score"`, "$score/")
	f(`"event":"$page"`, "#0 reserved_event event")
	f(`"event":"$"`, "#0 reserved_event event")
	f(`"event":"a`+"\xff"+`"`, "#0 bad_utf8 event")
	f(`"event":"e","event":"e"`, "#0 duplicate_field event")

	f(`"user":null`, "e/")
	f(`"user":""`, "e/")
	f(`"user":-5`, "e/-5")
	f(`"user":0`, "e/0")
	f(`"user":9007199254740993`, "e/9007199254740993")
	f(`"user":1.5`, "#0 bad_user user")
	f(`"user":1e3`, "#0 bad_user user")
	f(`"user":true`, "#0 bad_user user")
	f(`"user":{"id":[1]}`, "#0 bad_user user")
	f(`"user":"\ud83d\ude00"`, "e/😀")
	f(`"user":"`+long(256)+`"`, "e/"+long(256))
	f(`"user":"`+long(257)+`"`, "#0 too_long user")
	f(`"user":"a","user":"b"`, "#0 duplicate_field user")
	for _, p := range []string{"null", "undefined", "None", "NaN", "[object Object]", " ", `\t\n`, "\u00a0\u3000", " null "} {
		f(`"user":"`+p+`"`, "#0 placeholder_user user")
	}
	for _, p := range []string{"Null", "none", "nullable", "u", "undefined1", "[object]"} {
		f(`"user":"`+p+`"`, "e/"+p)
	}

	f(`"id":"x-1"`, "e/ id=x-1")
	f(`"id":12345678901234567890`, "e/ id=12345678901234567890")
	f(`"id":null`, "e/")
	f(`"id":""`, "#0 bad_id id")
	f(`"id":1.0`, "#0 bad_id id")
	f(`"id":"a\u0000"`, "#0 bad_id id")
	f(`"id":[]`, "#0 bad_id id")
	f(`"id":"`+long(128)+`"`, "e/ id="+long(128))
	f(`"id":"`+long(129)+`"`, "#0 too_long id")

	f(`"value":0`, "e/ value=0")
	f(`"value":-12.50`, "e/ value=-12.50")
	f(`"value":1E+2`, "e/ value=1E+2")
	f(`"value":1e-400`, "e/ value=1e-400")
	f(`"value":null`, "e/")
	f(`"value":1e400`, "#0 bad_value value")
	f(`"value":"1"`, "#0 bad_value value")
	f(`"value":true`, "#0 bad_value value")
	f(`"value":{}`, "#0 bad_value value")
	f(`"value":`+strings.Repeat("9", 64), "e/ value="+strings.Repeat("9", 64))
	f(`"value":`+strings.Repeat("9", 65), "#0 too_long value")

	f(`"props":null`, "e/")
	f(`"props":{}`, "e/")
	f(`"props":{"a":"\u00e9","b":1.50,"c":true,"d":false,"e":null,"":null}`, "#0 bad_props props")
	f(`"props":{"a":"\u00e9","b":1.50,"c":true,"d":false,"e":null}`, "e/ a:s:é b:n:1.50 c:t: d:f:")
	f(`"props":[]`, "#0 bad_props props")
	f(`"props":"x"`, "#0 bad_props props")
	f(`"props":{"a":{}}`, "#0 nested_prop props.a")
	f(`"props":{"a":[1,[2]]}`, "#0 nested_prop props.a")
	f(`"props":{"a":1e999}`, "#0 bad_props props.a")
	f(`"props":{"a":1,"b":2,"a":3}`, "#0 duplicate_field props.a")
	f(`"props":{"\n":1}`, "#0 bad_props props")
	f(`"props":{"`+long(64)+`":1}`, "e/ "+long(64)+":n:1")
	f(`"props":{"`+long(65)+`":1}`, "#0 too_long props")
	f(`"props":{"a":"`+long(1024)+`"}`, "e/ a:s:"+long(1024))
	f(`"props":{"a":"`+long(1025)+`"}`, "#0 too_long props.a")
	f(`"props":{"a":"\udc00"}`, "#0 bad_utf8 props.a")
	f(`"id":"`+strings.Repeat("i", 100)+`","props":{"`+strings.Repeat("k", 60)+`":{}}`, "#0 nested_prop props")
	f(`"props":{`+manyProps(32)+`,"n":null}`, "e/"+wantProps(32))
	f(`"props":{`+manyProps(33)+`}`, "#0 too_many_props props")

	f(`"unknown":"`+"\xff"+`\ud83d","events":"x"`, "e/")
	f(`"user":" ","value":"x"`, "#0 placeholder_user user") // the first fault counts
}

func manyProps(n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf(`"k%d":%d`, i, i))
	}
	return strings.Join(out, ",")
}

func wantProps(n int) string {
	var out string
	for i := range n {
		out += fmt.Sprintf(" k%d:n:%d", i, i)
	}
	return out
}

func TestID01_NulInUser(t *testing.T) {
	events, v, err := judged(t, `[{"event":"e","user":"a\u0000b"},{"event":"e","user":"a"},{"event":"e","user":"ab"}]`, Rules{})
	if got, want := summary(events, v), "e/a, e/ab, #0 bad_user user"; err != nil || got != want {
		t.Errorf("got %s %v, want %s", got, err, want)
	}
}

func TestID03_InvalidUTF8(t *testing.T) {
	for _, user := range []string{"a\xff", "a\xfe", `\ud83d`, `\ud83dx`, `\ud83d\ud83d`, `\ude00`, "\xed\xa0\xbd", "\xc0\x80"} {
		events, v, err := judged(t, `{"event":"e","user":"`+user+`"}`, Rules{})
		if got, want := summary(events, v), "#0 bad_utf8 user"; err != nil || got != want {
			t.Errorf("%q: got %s %v, want %s", user, got, err, want)
		}
	}
}

// TestID05_LongURL: a page view whose URL is over a prop's limit is refused and told which field it is; imports cut it instead.
func TestID05_LongURL(t *testing.T) {
	url := "/landing?x=" + strings.Repeat("y", 2989)
	_, v, err := judged(t, `{"event":"page_view","user":"u","props":{"page":"`+url+`"}}`, Rules{})
	if err != nil || len(v.Rejected) != 1 {
		t.Fatalf("%v %v", v, err)
	}
	if r := v.Rejected[0]; r.Code != CodeTooLong || r.Field != "props.page" || !strings.Contains(r.Detail, "1024") {
		t.Errorf("got %+v", r)
	}
}

func TestID07_EmptyUserIsNoUser(t *testing.T) {
	body := strings.Repeat(`{"event":"e","user":null}`+"\n", 10) + strings.Repeat(`{"event":"e","user":""}`+"\n", 5) +
		strings.Repeat(`{"event":"e","user":"u1"}`+"\n", 3)
	events, _, err := judged(t, body, Rules{})
	users := map[string]int{}
	for _, e := range events {
		users[e.User]++
	}
	if err != nil || len(events) != 18 || len(users) != 2 || users[""] != 15 || users["u1"] != 3 {
		t.Errorf("%d events, users %v, %v; want 18 and 15 without a user", len(events), users, err)
	}
}

func TestID08_IntegersKeepTheirDigits(t *testing.T) {
	events, v, err := judged(t, `[{"event":"e","user":9007199254740992},{"event":"e","user":9007199254740993},{"event":"e","user":12345678},{"event":"e","user":"12345678"},{"event":"e","user":-0},{"event":"e","user":"-0"}]`, Rules{})
	if got, want := summary(events, v), "e/9007199254740992, e/9007199254740993, e/12345678, e/12345678, e/0, e/-0"; err != nil || got != want {
		t.Errorf("got %s %v, want %s", got, err, want)
	}
}

func TestID09_OneEventTooLarge(t *testing.T) {
	const good = `{"event":"e","user":"u"}`
	big := `{"event":"e","id":"big","user":"u","props":{"p":"` + strings.Repeat("x", 2<<20) + `"}}`
	for name, body := range map[string]string{
		"array":    "[" + good + "," + big + "," + good + "]",
		"lines":    good + "\n" + big + "\n" + good + "\n",
		"envelope": `{"events":[` + good + "," + big + "," + good + "]}",
	} {
		_, v, err := judged(t, body, Rules{})
		if err != nil || v.Accepted != 2 || len(v.Rejected) != 1 {
			t.Errorf("%s: %+v %v", name, v, err)
			continue
		}
		if r := v.Rejected[0]; r.Index != 1 || r.ID != "big" || r.Code != CodeTooLarge || !strings.Contains(r.Detail, "65536") {
			t.Errorf("%s: %+v", name, r)
		}
	}
	fill := func(n int) string {
		return good[:len(good)-1] + `,"x":"` + strings.Repeat("x", n-len(good)-len(`,"x":""`)) + `"}`
	}
	for _, c := range []struct {
		n    int
		want string
	}{{64 << 10, "e/u"}, {64<<10 + 1, "#0 too_large"}} {
		events, v, err := judged(t, fill(c.n), Rules{})
		if got := summary(events, v); err != nil || got != c.want {
			t.Errorf("%d bytes: got %s %v, want %s", c.n, got, err, c.want)
		}
	}
}

// TestLB05_NumbersThatAreNone: what other parsers take for a number is refused, as the event or as the body.
func TestLB05_NumbersThatAreNone(t *testing.T) {
	for lit, want := range map[string]string{
		`"NaN"`: CodeBadValue, `"Infinity"`: CodeBadValue, `"-inf"`: CodeBadValue, `" 5"`: CodeBadValue, `"5"`: CodeBadValue,
		`1e400`: CodeBadValue, `-1e400`: CodeBadValue,
		`NaN`: CodeBody, `Infinity`: CodeBody, `-inf`: CodeBody, `0x10`: CodeBody, `1_000`: CodeBody, `.5`: CodeBody, `١`: CodeBody,
	} {
		events, v, err := judged(t, `{"event":"$score","user":"u","value":`+lit+`}`, Rules{})
		got := ""
		if err != nil {
			got = apperr.As(err).Code
		} else if len(v.Rejected) == 1 {
			got = v.Rejected[0].Code
		}
		if got != want || len(events) != 0 {
			t.Errorf("%s: got %q with %d events taken, want %s", lit, got, len(events), want)
		}
	}
}

// TestDD04_AnswersPerItem: each item's answer stands at its own index, so a client can send again just what failed, or all from
// the first failure on: the ids of what was taken are in the journal as they came.
func TestDD04_AnswersPerItem(t *testing.T) {
	item := func(id, user string) string { return `{"event":"e","id":"` + id + `","user":"` + user + `"}` }
	events, v, err := judged(t, "["+item("0", "a")+","+item("1", "null")+","+item("2", "b")+","+item("3", " ")+"]", Rules{})
	if err != nil || len(events) != 2 || events[0].ID != "0" || events[1].ID != "2" {
		t.Fatalf("%+v %+v %v", events, v, err)
	}
	want := []Rejection{{1, "1", CodePlaceholder, "user", details[CodePlaceholder]}, {3, "3", CodePlaceholder, "user", details[CodePlaceholder]}}
	if !slices.Equal(v.Rejected, want) {
		t.Errorf("got %+v, want %+v", v.Rejected, want)
	}
	events, v, err = judged(t, "["+item("1", "c")+","+item("2", "b")+","+item("3", "d")+"]", Rules{})
	if err != nil || len(v.Rejected) != 0 || len(events) != 3 || events[1].ID != "2" {
		t.Errorf("%+v %+v %v", events, v, err)
	}
}

func TestTooManyEvents(t *testing.T) {
	limits := DefaultLimits()
	limits.MaxEvents = 3
	for name, form := range map[string]func(n int) string{
		"array":    func(n int) string { return "[" + strings.Repeat(`{"event":"e"},`, n-1) + `{"event":"e"}]` },
		"lines":    func(n int) string { return strings.Repeat(`{"event":"e"}`+"\n", n) },
		"one line": func(n int) string { return strings.Repeat(`{"event":"e"}`, n) },
		"bad":      func(n int) string { return `{"event":"e"}` + strings.Repeat("\nx", n-1) },
		"numbers":  func(n int) string { return "[" + strings.Repeat(`1,`, n-1) + `1]` },
	} {
		if _, v, err := judged(t, form(3), Rules{Limits: limits}); err != nil || v.Received != 3 {
			t.Errorf("%s: 3 events: %+v %v", name, v, err)
		}
		_, _, err := judged(t, form(4), Rules{Limits: limits})
		var e *apperr.Error
		if !errors.As(err, &e) || e.Kind != apperr.TooLarge || e.Code != CodeTooMany || e.Option == "" {
			t.Errorf("%s: 4 events: %v", name, err)
		}
	}
}

func TestResultJSON(t *testing.T) {
	_, v, err := judged(t, `[{"event":"e","id":"<\"\u2028\\`+"é"+`\u0001","user":5.5},{"event":"x","id":"`+strings.Repeat("é", 100)+`"},3]`, Rules{})
	if err != nil {
		t.Fatal(err)
	}
	r := Result{Received: v.Received, Accepted: v.Accepted, Rejected: v.Rejected}
	out := r.AppendJSON(nil)
	var got struct {
		Received, Accepted int
		Duplicates         *int
		Rejected           []struct {
			Index                   int
			ID, Code, Field, Detail string
		}
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	if got.Received != 3 || got.Accepted != 0 || len(got.Rejected) != 3 || got.Duplicates != nil || !r.AllRejected() {
		t.Fatalf("%s", out)
	}
	if g := got.Rejected[0]; g.ID != "<\"\u2028\\é\x01" || g.Code != CodeBadUser || g.Field != "user" || g.Detail == "" {
		t.Errorf("%+v in %s", g, out)
	}
	if g := got.Rejected[1]; g.ID != strings.Repeat("é", 64) || g.Code != CodeTooLong {
		t.Errorf("%+v in %s", g, out)
	}
	if strings.ContainsAny(string(out), "<>&\u2028") {
		t.Errorf("not safe in HTML: %s", out)
	}
	empty := Result{Waited: true, Applied: true}
	if got, want := string(empty.AppendJSON(nil)), `{"received":0,"accepted":0,"duplicates":0,"applied":true,"rejected":[]}`; got != want || empty.AllRejected() {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestNoAllocationPerEvent: a batch allocates no more than one event does.
func TestNoAllocationPerEvent(t *testing.T) {
	var b event.Builder
	run := func(body []byte) float64 {
		judge := func() {
			b.Reset("demo", noon, false, false)
			if v, err := Judge(body, Rules{Now: noon}, &b); err != nil || len(v.Rejected) > 0 {
				t.Errorf("%+v %v", v, err)
			}
		}
		judge()
		return testing.AllocsPerRun(20, judge)
	}
	if n := run(realistic(1000)); n > 1 {
		t.Errorf("1,000 events: %v allocations", n)
	}
	if n := run([]byte(`{"event":"caf\u00e9","user":"\ud83d\ude00","props":{"\u00e9":1e5}}`)); n > 1 {
		t.Errorf("escapes: %v allocations", n)
	}
}
