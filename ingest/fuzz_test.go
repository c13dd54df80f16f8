package ingest

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/event"
)

var seeds = []string{
	`{"event":"a","user":"1","id":"x","ts":1796036400,"value":1.5,"props":{"a":"b","c":1,"d":true,"e":null}}`,
	`[{"event":"a"},{"event":"b","user":12}]`,
	`{"events":[{"event":"a","ts":"2026-11-30T08:00:00+08:00"}],"sent_at":"2026-11-30T12:00:00Z"}`,
	"{\"event\":\"a\"}\r\n\n{\"event\"\n{\"event\":\"b\",\"user\":\"\\ud83d\\ude00\"}",
	"{\n\"event\":\"a\"}\n{\"event\":\"b\"}",
	"\xef\xbb\xbf[]", `{"event":"\u0061\ud83d"}`, `{"a":[[{"b":[]}],{}],"event":"x"}`, `1e400`, `-0.0e-0`,
}

// FuzzJudge: no body makes Judge panic, its sums are right, and what it took keeps every rule when it is read back.
func FuzzJudge(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, historical bool) {
		before := string(body)
		events, v, err := judged(t, string(body), Rules{Historical: historical})
		if string(body) != before {
			t.Fatal("the body was changed")
		}
		if err != nil {
			if e := apperr.As(err); e.Kind == apperr.Internal || e.Code == "" || e.Detail == "" {
				t.Fatalf("not an error for a client: %v", err)
			}
			return
		}
		for i := range events {
			mustBeGood(t, &events[i], historical)
		}
		last := -1
		for _, r := range v.Rejected {
			if r.Index <= last || r.Index >= v.Received || r.Detail == "" || len(r.ID) > maxEcho || len(r.Field) > maxEcho {
				t.Fatalf("rejection %+v after index %d", r, last)
			}
			last = r.Index
		}
		res := Result{Received: v.Received, Accepted: v.Accepted, Rejected: v.Rejected}
		if out := res.AppendJSON(nil); !json.Valid(out) || !utf8.Valid(out) {
			t.Fatalf("the answer is not JSON: %q", out)
		}
	})
}

func mustBeGood(t *testing.T, e *event.Event, historical bool) {
	t.Helper()
	good := func(s string, limit int) bool { return len(s) <= limit && utf8.ValidString(s) }
	ok := e.Name != "" && good(e.Name, event.MaxName) && !hasControl(e.Name)
	ok = ok && (e.Name[0] != '$' || e.Name == "$signin" || e.Name == "$makeup" || e.Name == "$score")
	ok = ok && good(e.User, event.MaxUser) && strings.IndexByte(e.User, 0) < 0
	ok = ok && (e.User == "" || strings.TrimSpace(e.User) != "" && e.User != "null" && e.User != "[object Object]")
	ok = ok && good(e.ID, event.MaxID) && strings.IndexByte(e.ID, 0) < 0
	ok = ok && e.Time >= oldest && e.Time <= noon+600_000 && (historical || e.Time >= noon-7*86_400_000)
	if e.Value != "" {
		f, err := strconv.ParseFloat(e.Value, 64)
		ok = ok && err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) && len(e.Value) <= event.MaxValue && json.Valid([]byte(e.Value))
	}
	ok = ok && e.Props.Len() <= event.MaxProps
	seen := map[string]bool{}
	for p := range e.Props.All() {
		ok = ok && p.Key != "" && good(p.Key, event.MaxPropKey) && good(p.Value, event.MaxPropValue) && !seen[p.Key]
		seen[p.Key] = true
		if p.Kind == event.Number {
			ok = ok && json.Valid([]byte(p.Value))
		}
	}
	if !ok {
		t.Fatalf("taken against the rules: %+v props %q", e, e.Props)
	}
}

// FuzzAgainstEncodingJSON: a single object is readable for us just when it is for encoding/json, and strings mean the same.
func FuzzAgainstEncodingJSON(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		trimmed := strings.Trim(string(body), " \t\r\n")
		s := scanner{b: []byte(trimmed)}
		ours := s.skip() && s.i == len(trimmed)
		theirs := json.Valid([]byte(trimmed))
		if ours != theirs && (ours || depth(trimmed) <= maxDepth) {
			t.Fatalf("skip %q: ours %v, encoding/json %v", trimmed, ours, theirs)
		}
		if len(trimmed) > 0 && trimmed[0] == '"' && ours {
			var scratch []byte
			s := scanner{b: []byte(trimmed)}
			raw, ok := s.str()
			v, valid := raw.decode(&scratch)
			var want string
			if err := json.Unmarshal([]byte(trimmed), &want); err != nil || !ok || valid && v != want || !valid && !strings.ContainsRune(want, utf8.RuneError) {
				t.Fatalf("string %q: ours %q %v, encoding/json %q %v", trimmed, v, valid, want, err)
			}
		}
		if !strings.HasPrefix(trimmed, "{") || strings.Contains(trimmed, "\n") || !theirs {
			return
		}
		if _, _, err := judged(t, trimmed, Rules{}); err != nil && depth(trimmed) <= maxDepth {
			if c := apperr.As(err).Code; c == CodeBody && !strings.Contains(err.Error(), "twice") {
				t.Fatalf("%q is valid JSON, but: %v", trimmed, err)
			}
		}
	})
}

func depth(s string) int { return strings.Count(s, "[") + strings.Count(s, "{") }

// TestMutatedBodies runs the fuzz targets' checks over many damaged bodies, for those who do not fuzz.
func TestMutatedBodies(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	var b event.Builder
	for range 20_000 {
		body := []byte(seeds[r.IntN(len(seeds))])
		for range r.IntN(4) {
			switch i := r.IntN(len(body)); r.IntN(3) {
			case 0:
				body[i] = byte(r.Uint32())
			case 1:
				body = body[:i+1]
			case 2:
				body = append(body, body[i:]...)
			}
		}
		b.Reset("demo", noon, false, false)
		v, err := Judge(body, Rules{Now: noon}, &b)
		if err == nil && (v.Received != v.Accepted+len(v.Rejected) || v.Accepted != b.Len()) {
			t.Fatalf("%q: %+v, %d in the chunk", body, v, b.Len())
		}
	}
}
