package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/rollcall/rollcall/ingest"
	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/realtest"
)

// all reads the whole input.
func all(t testing.TB, r io.Reader, o Options) []Row {
	t.Helper()
	s, err := Open(r, o)
	if err != nil {
		t.Fatal(err)
	}
	var out []Row
	for {
		row, err := s.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if (row.Event == nil) == (row.Reason == "") {
			t.Fatalf("line %d has event %q and reason %q", row.Line, row.Event, row.Reason)
		}
		if row.Event != nil && (!json.Valid(row.Event) || bytes.ContainsAny(row.Event, "\r\n") && o.Format != NDJSON) {
			t.Fatalf("line %d: %s", row.Line, row.Event)
		}
		out = append(out, row)
	}
}

var madeID = regexp.MustCompile(`"id":"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",?`)

// brief is rows in short, with ids of ours as #.
func brief(rows []Row) (out []string) {
	for _, r := range rows {
		if r.Reason != "" {
			out = append(out, fmt.Sprintf("%d: %s: %.40s", r.Line, r.Reason, r.Text))
		} else {
			out = append(out, fmt.Sprintf("%d %s", r.Line, madeID.ReplaceAllString(string(r.Event), "#")))
		}
	}
	return out
}

func check(t *testing.T, in string, o Options, want ...string) {
	t.Helper()
	for name, r := range map[string]io.Reader{"at once": strings.NewReader(in), "byte by byte": iotest.OneByteReader(strings.NewReader(in))} {
		if got := brief(all(t, r, o)); !slices.Equal(got, want) {
			t.Errorf("%s: %q\n got %s\nwant %s", name, in, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
		}
	}
}

func TestCombined(t *testing.T) {
	o := Options{Format: Combined, Name: "a.log", Event: "page_view", User: "addr", Props: []string{"page=path", "s=status", "b=bytes", "r=referer", "a=agent", "q=query", "m=method"}}
	const tail = `HTTP/1.1" 200 5 "-" "-"`
	check(t, `10.0.0.1 - - [17/May/2015:10:05:03 +0800] "GET /a?b=c#d HTTP/1.1" 200 203 "http://x/\"y" "Mozilla \\ \x41"`+"\r\n", o,
		`1 {#"event":"page_view","ts":"2015-05-17T10:05:03+08:00","user":"10.0.0.1","props":{"page":"/a","s":200,"b":203,"r":"http://x/\"y","a":"Mozilla \\ A","q":"b=c","m":"GET"}}`)
	o.Props = []string{"page=path"}
	f := func(line, want string) {
		t.Helper()
		check(t, line, o, want)
	}
	g := func(line, reason string) {
		t.Helper()
		check(t, line, o, fmt.Sprintf("1: %s: %.40s", reason, line))
	}
	at := `"event":"page_view","ts":"2015-05-17T10:05:03Z",`
	begin := `h - u v [17/May/2015:10:05:03 +0000] `
	f(begin+`"GET / `+tail, `1 {#`+at+`"user":"h","props":{"page":"/"}}`)
	f(begin+`"GET / `+tail+` 0.003 "more"`, `1 {#`+at+`"user":"h","props":{"page":"/"}}`)
	f(begin+`"-" 408 - "-" "-"`, `1 {#`+at+`"user":"h"}`)
	f(begin+`"\x16\x03" 400 - "-" "-"`, `1 {#`+at+`"user":"h"}`)
	f(begin+"\"GET /\xff\\xe9\\x00<é "+tail, `1 {#`+at+`"user":"h","props":{"page":"/%FF%E9%00\u003cé"}}`)
	f(begin+`"GET /`+strings.Repeat("é", 600)+` `+tail, `1 {#`+at+`"user":"h","props":{"page":"/`+strings.Repeat("é", 511)+`"}}`)
	g(begin+`"GET / HTTP/1.1" 200 5 "-" "cut`, `the line is cut off in its agent, or it is not in quotes`)
	g(begin+`"GET / HTTP/1.1" 200 5 "-" "cut\"`, `the line is cut off in its agent, or it is not in quotes`)
	g(begin+`"GET / HTTP/1.1" 200 5`, `the line ends before its bytes`)
	g(begin+`"GET / HTTP/1.1" 200 5 x`, `the line is cut off in its referer, or it is not in quotes`)
	g(`h - - [17/Mai/2015:10:05:03 +0000] "GET / `+tail, `the time is not like 17/May/2015:10:05:03 +0000`)
	g(`h - - [17/May/2015:10:05:03 +0000`, `the line is cut off in its time`)
	g(`hello`, `the line ends before its address`)
	g(`h - hello`, `the line has no [time]`)
	o.User, o.Value, o.ID = "user", "bytes", "query"
	f(begin+`"GET /?x1 `+tail, `1 {`+at+`"user":"u v","id":"x1","value":5,"props":{"page":"/"}}`)
	f(begin+`"GET / `+tail, `1 {#`+at+`"user":"u v","value":5,"props":{"page":"/"}}`)
	for _, bad := range []Options{
		{}, {Format: "x"}, {Format: Combined}, {Format: Combined, Event: "e", User: "nobody"}, {Format: Combined, Event: "e", TS: "x"},
		{Format: Combined, Event: "e", Props: []string{"a"}}, {Format: Combined, Event: "e", Props: []string{"a=path", "a=query"}}, {Format: Combined, Event: "e", Props: []string{"a=b"}},
	} {
		if _, err := Open(strings.NewReader(""), bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

func TestCSV(t *testing.T) {
	o := Options{Format: CSV, Name: "r.csv", Event: "rating", User: "userId", TS: "timestamp", Value: "rating", Props: []string{"movie=movieId"}}
	const header = "userId,movieId,rating,timestamp\n"
	check(t, "\ufeff"+header+"1,31,2.5,1260759144\r\n\n2,,,1260759145\n3,\"a,\"\"b\"\"\nc\",\" 5\",1\n4,\"5\"", o,
		`2 {#"event":"rating","ts":"1260759144","user":"1","value":2.5,"props":{"movie":"31"}}`,
		`4 {#"event":"rating","ts":"1260759145","user":"2"}`,
		`5 {#"event":"rating","ts":"1","user":"3","value":" 5","props":{"movie":"a,\"b\"\u000ac"}}`,
		`7: the row has 2 fields, the header 4: 4,"5"`)
	check(t, header+"1,2,3\n1,2,3,4,5\n1,2,3,\n1,x\"y,3,4\n1,\"x\"y,3,4\n1,\xff,3,4\n1,2,0x10,4\n1,2,NaN,4", o,
		"2: the row has 3 fields, the header 4: 1,2,3",
		"3: the row has 5 fields, the header 4: 1,2,3,4,5",
		"4: the row has no time: 1,2,3,",
		"5: a quote stands inside a field that is not in quotes: 1,x\"y,3,4",
		"6: something stands between a closing quote and the comma: 1,\"x\"y,3,4",
		"7: the row is not valid UTF-8: 1,\xff,3,4",
		`8 {#"event":"rating","ts":"4","user":"1","value":"0x10","props":{"movie":"2"}}`,
		`9 {#"event":"rating","ts":"4","user":"1","value":"NaN","props":{"movie":"2"}}`)
	// A quote that is never closed costs its own line, not the rest of the file.
	good := func(line int) string {
		return fmt.Sprintf(`%d {#"event":"rating","ts":"4","user":"1","value":3,"props":{"movie":"2"}}`, line)
	}
	check(t, header+"1,\"2,3,4\n1,2,3,4\r\n1,2,3,4", o, `2: a quote is opened and not closed: 1,"2,3,4`, good(3), good(4))
	in, want := header+"1,\"2,3,4\n", []string{`2: a quote is opened and not closed: 1,"2,3,4`}
	for i := range 10_000 {
		in += "1,2,3,4\n"
		want = append(want, good(3+i))
	}
	check(t, in, o, want...)
	long := "1," + strings.Repeat("x", MaxLine) + ",3,4\n"
	check(t, header+"1,\"2,3,4\n1,2,3,4\n"+long+"1,2,3,4\n", o,
		`2: a quote is opened and not closed: 1,"2,3,4`, good(3), "4: the line is over the limit of 65536 bytes: "+long[:40], good(5))

	check(t, "event,who,when,key\nx,a,1,k\n,b,2,\n", Options{Format: CSV, Event: "e", User: "who", TS: "when", ID: "key"},
		`2 {"event":"x","ts":"1","user":"a","id":"k"}`, `3 {#"event":"e","ts":"2","user":"b"}`)
	for in, o := range map[string]Options{
		"":           o,
		"a,b\n":      {Format: CSV, Event: "e", TS: "c"},
		"a,b \n":     {Format: CSV, Event: "e", TS: "a", User: "b"},
		"a,a\n":      {Format: CSV, Event: "e", TS: "a"},
		"a,\"b\n":    {Format: CSV, Event: "e", TS: "a"},
		"a,b\n1,2\n": {Format: CSV, TS: "a"},
		"a\n":        {Format: CSV, Event: "e"},
	} {
		if _, err := Open(strings.NewReader(in), o); err == nil {
			t.Errorf("%q with %+v is taken", in, o)
		}
	}
}

func TestNDJSON(t *testing.T) {
	check(t, `{"event":"a","id":"x"}`+"\n\n"+` {"user":"u"} `+"\n{}\nnot\n[1]\n"+`{"id":null,"event":null}`+"\n"+`{"ID":"x"}`+"\n{\"event\":\n", Options{Format: NDJSON, Event: "e"},
		`1 {"event":"a","id":"x"}`, `3 {#"event":"e","user":"u"}`, `4 {#"event":"e"}`, "5: the line is not a JSON object: not",
		"6: the line is not a JSON object: [1]", `7 {#"event":"e"}`, `8 {#"event":"e","ID":"x"}`, `9: the line is not a JSON object: {"event":`)
	check(t, `{}`, Options{Format: NDJSON}, `1 {#}`)
	if _, err := Open(strings.NewReader(""), Options{Format: NDJSON, User: "u"}); err == nil {
		t.Error("mapping fields of ndjson is taken")
	}
}

func TestLongLines(t *testing.T) {
	line := func(n int) string { return `{"event":"` + strings.Repeat("x", n-12) + `"}` }
	in := line(MaxLine) + "\n" + line(MaxLine+1) + "\n" + line(MaxLine) + "\r\n" + line(5<<20) + "\n" + `{"event":"a"}` + "\n" + line(MaxLine+1)
	var got []string
	for _, r := range all(t, strings.NewReader(in), Options{Format: NDJSON}) {
		got = append(got, fmt.Sprintf("%d %d %s", r.Line, len(r.Text), r.Reason))
		if len(r.Text) > MaxLine {
			t.Errorf("line %d keeps %d bytes", r.Line, len(r.Text))
		}
	}
	want := []string{"1 65536 ", "2 65536 " + string(errTooLong), "3 65536 ", "4 65536 " + string(errTooLong), "5 13 ", "6 65536 " + string(errTooLong)}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestIDs: the same file gives the same ids, and each row another one; another file name, name of the events, place or content gives another id.
func TestIDs(t *testing.T) {
	ids := func(name, in string, event ...string) []string {
		var out []string
		for _, r := range all(t, strings.NewReader(in), Options{Format: NDJSON, Name: name, Event: strings.Join(event, "")}) {
			var e struct{ ID string }
			if err := json.Unmarshal(r.Event, &e); err != nil {
				t.Fatal(err)
			}
			out = append(out, e.ID)
		}
		return out
	}
	in := strings.Repeat(`{"event":"a"}`+"\n", 1000)
	a := ids("f", in)
	if !slices.Equal(a, ids("f", in)) || !slices.Equal(a, ids("f", strings.ReplaceAll(in, "\n", "\r\n"))) {
		t.Error("a second reading gives other ids")
	}
	seen := map[string]bool{}
	for _, id := range slices.Concat(a, ids("g", in), ids("f", strings.Repeat(`{"event":"b"}`+"\n", 1000)), ids("f", in, "c"), ids("f", in, "d")) {
		seen[id] = true
	}
	if len(seen) != 5000 {
		t.Errorf("%d ids of 5000 rows", len(seen))
	}
	// These are in journals: they must never change.
	if got, want := a[0], goldenID; got != want {
		t.Errorf("the first id is %s, want %s", got, want)
	}
}

func TestReadersErrorIsTold(t *testing.T) {
	broken := errors.New("disk")
	s, err := Open(io.MultiReader(strings.NewReader("{}\n{"), iotest.ErrReader(broken)), Options{Format: NDJSON})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next(); err != nil {
		t.Fatal(err)
	}
	if row, err := s.Next(); !errors.Is(err, broken) {
		t.Errorf("got %+v %v", row, err)
	}
}

// judged sends rows as an import does and counts what ingest says.
func judged(t *testing.T, rows []Row) (taken []event.Event, refused map[string]int) {
	t.Helper()
	refused = map[string]int{}
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).UnixMilli()
	var b event.Builder
	for batch := range slices.Chunk(rows, 5000) {
		var body []byte
		for _, r := range batch {
			if r.Reason != "" {
				refused[r.Reason]++
				continue
			}
			body = append(append(body, r.Event...), '\n')
		}
		b.Reset("demo", now, true, false)
		v, err := ingest.Judge(body, ingest.Rules{Now: now, Historical: true}, &b)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range v.Rejected {
			refused[r.Code]++
		}
		var rec event.Record
		if err := rec.Decode(event.AppendRecord(nil, event.Header{}, b.Bytes())); err != nil {
			t.Fatal(err)
		}
		taken = append(taken, rec.Events...)
	}
	return taken, refused
}

func shared(t *testing.T, name string, o Options) ([]event.Event, map[string]int) {
	t.Helper()
	f, err := os.Open(filepath.Join(realtest.Shared(t), "data", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o.Name = name
	taken, refused := judged(t, all(t, f, o))
	ids := map[string]bool{}
	for _, e := range taken {
		ids[e.ID] = true
	}
	if len(ids) != len(taken) {
		t.Errorf("%d ids of %d events", len(ids), len(taken))
	}
	return taken, refused
}

func TestRealAccessLog(t *testing.T) {
	taken, refused := shared(t, "access.log", Options{Format: Combined, Event: "page_view", User: "addr", Props: []string{"page=path"}})
	if want := map[string]int{"the line is cut off in its agent, or it is not in quotes": 1}; !maps.Equal(refused, want) {
		t.Errorf("refused %v, want %v", refused, want)
	}
	days := func(loc *time.Location) string {
		pv, uv := map[string]int{}, map[string]map[string]bool{}
		for _, e := range taken {
			day := time.UnixMilli(e.Time).In(loc).Format("01-02")
			pv[day]++
			if uv[day] == nil {
				uv[day] = map[string]bool{}
			}
			uv[day][e.User] = true
		}
		var out []string
		for _, d := range slices.Sorted(maps.Keys(pv)) {
			out = append(out, fmt.Sprintf("%d/%d", pv[d], len(uv[d])))
		}
		return strings.Join(out, " ")
	}
	if got, want := days(time.UTC), "1632/341 2893/627 2896/561 2578/505"; got != want || len(taken) != 9999 {
		t.Errorf("by UTC day: %s (%d events), want %s", got, len(taken), want)
	}
	if got, want := days(time.FixedZone("Shanghai", 8*3600)), "663/137 2906/601 2881/629 2876/534 673/163"; got != want {
		t.Errorf("by day in Shanghai: %s, want %s", got, want)
	}
}

func TestRealRatings(t *testing.T) {
	taken, refused := shared(t, "ratings.csv", Options{Format: CSV, Event: "rating", User: "userId", TS: "timestamp", Value: "rating", Props: []string{"movie=movieId"}})
	users := map[string]bool{}
	for _, e := range taken {
		users[e.User] = true
	}
	if len(taken) != 100_004 || len(users) != 671 || !maps.Equal(refused, map[string]int{ingest.CodeTooOld: 16}) {
		t.Errorf("taken %d of %d users, refused %v; want 100004, 671, 16 too_old", len(taken), len(users), refused)
	}
}

func FuzzSource(f *testing.F) {
	f.Add([]byte("h - - [17/May/2015:10:05:03 +0000] \"GET /\\x41 HTTP/1.1\" 200 5 \"-\" \"a\\\"\"\n"), byte(0))
	f.Add([]byte("a,ts\n\"x\"\"y\n\",1\n2,\"3\n"), byte(1))
	f.Add([]byte("{\"id\":null,\"a\":1}\n{}\r\n"), byte(2))
	f.Fuzz(func(t *testing.T, in []byte, kind byte) {
		o := []Options{
			{Format: Combined, Event: "e", User: "addr", Value: "bytes", Props: []string{"p=path", "a=agent"}},
			{Format: CSV, Event: "e", User: "a", TS: "ts", Value: "a"},
			{Format: NDJSON, Event: "e"},
		}[kind%3]
		s, err := Open(bytes.NewReader(in), o)
		if err != nil {
			return
		}
		last := int64(0)
		for {
			row, err := s.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if row.Line <= last || len(row.Text) > MaxLine {
				t.Fatalf("line %d after %d, %d bytes", row.Line, last, len(row.Text))
			}
			last = row.Line
			if row.Reason == "" && (!json.Valid(row.Event) || o.Format != NDJSON && bytes.IndexByte(row.Event, '\n') >= 0) {
				t.Fatalf("line %d: %q", row.Line, row.Event)
			}
		}
		if s.Read() != int64(len(in)) {
			t.Fatalf("read %d of %d bytes", s.Read(), len(in))
		}
	})
}

func BenchmarkCombined(b *testing.B) {
	line := `10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET /presentations/logstash-monitorama-2013/images/kibana-search.png HTTP/1.1" 200 203023 "http://example.com/presentations/" "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_9_1) AppleWebKit/537.36"` + "\n"
	s, err := Open(io.LimitReader(&repeat{line: line}, int64(b.N*len(line))), Options{Format: Combined, Event: "page_view", User: "addr", Props: []string{"page=path"}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if row, err := s.Next(); err != nil || row.Event == nil {
			b.Fatal(row, err)
		}
	}
}

type repeat struct {
	line string
	at   int
}

func (r *repeat) Read(p []byte) (n int, err error) {
	for n < len(p) {
		c := copy(p[n:], r.line[r.at:])
		n += c
		r.at = (r.at + c) % len(r.line)
	}
	return n, nil
}

const goldenID = "03af3006-665d-8f52-b608-a7db1dc98906"
