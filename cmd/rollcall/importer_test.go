package main

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollcall/rollcall/ingest/files"
)

// takes is a server that keeps what it is sent. before may answer in its place.
type takes struct {
	mu     sync.Mutex
	calls  int
	events []string
	before func(call int, w http.ResponseWriter) bool // true = it has answered
}

func (s *takes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.before != nil && s.before(s.calls, w) {
		return
	}
	zip, err := gzip.NewReader(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	body, err := io.ReadAll(zip)
	if err != nil || r.URL.Query().Get("historical") != "1" || r.Header.Get("Authorization") != "Bearer k" {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	var a answer
	for l := range strings.Lines(string(body)) {
		if strings.Contains(l, "refuse") {
			a.Rejected = append(a.Rejected, struct {
				Index  int    `json:"index"`
				Code   string `json:"code"`
				Field  string `json:"field"`
				Detail string `json:"detail"`
			}{a.Received, "too_late", "ts", "Too old."})
		} else {
			s.events = append(s.events, strings.TrimSpace(l))
			a.Accepted++
		}
		a.Received++
	}
	w.Header().Set("Content-Type", "application/json")
	if a.Accepted == 0 {
		w.WriteHeader(http.StatusUnprocessableEntity)
	} else {
		w.WriteHeader(http.StatusAccepted)
	}
	if err := json.NewEncoder(w).Encode(a); err != nil {
		panic(err)
	}
}

type importRun struct {
	*importer
	rejected []string
	notes    []string
}

// importOf imports lines 1 to n; kind tells what a line is: "" good, "bad" no event, "refuse" refused by the server.
func importOf(t *testing.T, s *takes, n int, kind func(int64) string) *importRun {
	t.Helper()
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	number := int64(0)
	r := &importRun{}
	var mu sync.Mutex
	r.importer = &importer{
		client: &client{base: srv.URL, key: "k", http: srv.Client()}, batch: 10, inFlight: 3, patience: time.Minute,
		next: func() (files.Row, error) {
			if number == int64(n) {
				return files.Row{}, io.EOF
			}
			number++
			l := files.Row{Line: number, Text: fmt.Appendf(nil, "text %d", number)}
			if k := kind(number); k == "bad" {
				l.Reason = "unreadable"
			} else {
				l.Event = fmt.Appendf(nil, `{"n":%d,"k":"%s"}`, number, k)
			}
			return l, nil
		},
		reject: func(l files.Row) error {
			r.rejected = append(r.rejected, fmt.Sprintf("%d %s %s", l.Line, l.Reason, l.Text))
			return nil
		},
		note: func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			r.notes = append(r.notes, fmt.Sprintf(format, args...))
		},
	}
	return r
}

func good(int64) string { return "" }

func TestImportSendsEachEventOnceAndKeepsTheOrderOfRejects(t *testing.T) {
	s := &takes{}
	r := importOf(t, s, 105, func(n int64) string {
		switch {
		case n%20 == 3:
			return "bad"
		case n%20 == 7, n > 50 && n <= 60: // a whole batch that the server refuses
			return "refuse"
		case n > 70 && n <= 80: // a whole batch that is not sent
			return "bad"
		}
		return ""
	})
	if err := r.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(r.rejected, func(a, b string) int { return lineNumber(a) - lineNumber(b) }) {
		t.Errorf("rejects are not in the file's order: %v", r.rejected)
	}
	if r.rejected[0] != "3 unreadable text 3" || r.rejected[1] != "7 too_late (ts): Too old. text 7" {
		t.Errorf("rejects begin %q", r.rejected[:2])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.events)
	if n := len(slices.Compact(slices.Clone(s.events))); n != len(s.events) || int64(n) != r.sum.Taken {
		t.Errorf("the server has %d events, %d distinct; the summary says %s", len(s.events), n, r.sum)
	}
	if r.sum.Taken+r.sum.Rejected != 105 || r.sum.Rejected != int64(len(r.rejected)) {
		t.Errorf("summary %s, %d rejects; want 105 in all", r.sum, len(r.rejected))
	}
}

func lineNumber(s string) (n int) {
	if _, err := fmt.Sscan(s, &n); err != nil {
		panic(err)
	}
	return n
}

func TestImportTriesAgainWhileTheServerIsAway(t *testing.T) {
	s := &takes{before: func(call int, w http.ResponseWriter) bool {
		switch call {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			panic(http.ErrAbortHandler) // the connection breaks
		case 3:
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		case 4: // half an answer
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, `{"received":`)
		default:
			return false
		}
		return true
	}}
	r := importOf(t, s, 30, good)
	if err := r.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if r.sum.Taken != 30 || len(r.notes) != 4 {
		t.Errorf("summary %s, notes %q; want 30 taken and 4 notes", r.sum, r.notes)
	}
}

func TestImportHonoursRetryAfter(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set("Retry-After", "7")
	w.WriteHeader(http.StatusServiceUnavailable)
	var r *refusal
	if err := refused(w.Result()); !errors.As(err, &r) || r.after != 7*time.Second {
		t.Errorf("%v; want a refusal for 7 s", err)
	}
}

func TestImportStopsOnARefusal(t *testing.T) {
	s := &takes{before: func(_ int, w http.ResponseWriter) bool {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"code":"key_scope","detail":"Admin only."}`)
		return true
	}}
	r := importOf(t, s, 1000, good)
	err := r.run(context.Background())
	var no *refusal
	if !errors.As(err, &no) || no.Code != "key_scope" || no.Status != 403 {
		t.Errorf("error %v; want the server's refusal", err)
	}
	s.mu.Lock() // a request that was given up may still be with the server
	defer s.mu.Unlock()
	if s.calls > r.inFlight {
		t.Errorf("%d requests after the first refusal", s.calls)
	}
}

func TestImportGivesUpWhenItsPatienceEnds(t *testing.T) {
	r := importOf(t, &takes{before: func(_ int, w http.ResponseWriter) bool { w.WriteHeader(503); return true }}, 5, good)
	r.patience = time.Nanosecond
	var no *refusal
	if err := r.run(context.Background()); !errors.As(err, &no) || no.Status != 503 {
		t.Errorf("error %v; want the 503", err)
	}
}

func TestImportEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	r := importOf(t, &takes{before: func(_ int, w http.ResponseWriter) bool { w.WriteHeader(503); return true }}, 500, good)
	r.note = func(string, ...any) { cancel() }
	if err := r.run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v; want canceled", err)
	}
}

func TestImportStopsWhenAnAnswerDoesNotFit(t *testing.T) {
	f := func(body string) {
		t.Helper()
		r := importOf(t, &takes{before: func(_ int, w http.ResponseWriter) bool {
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, body)
			return true
		}}, 5, good)
		if err := r.run(context.Background()); err == nil {
			t.Errorf("answer %s to five events was taken", body)
		}
	}
	f(`{"received":4,"accepted":4}`)
	f(`{"received":5,"accepted":4,"rejected":[{"index":5}]}`)
	f(`{"received":5,"accepted":4,"rejected":[{"index":-1}]}`)
}
