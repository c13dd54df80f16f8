package main

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/realtest"
)

// Right values that need the whole path, all on one server. Each sub-test has an event name of its own.
func TestRightValues(t *testing.T) {
	s := start(t, t.TempDir())
	// answered sends a body and wants the status, the number taken, and the rejections as "index code field".
	answered := func(t *testing.T, body string, status, accepted int, rejected ...string) answer {
		t.Helper()
		code, a := s.post("?wait=30s", body)
		var got []string
		for _, r := range a.Rejected {
			got = append(got, fmt.Sprint(r.Index, " ", r.Code, " ", r.Field))
		}
		if code != status || a.Accepted != accepted || strings.Join(got, ", ") != strings.Join(rejected, ", ") || a.Applied == nil || !*a.Applied {
			t.Errorf("%.80q: answer %d %+v; want %d, %d accepted, applied, rejected %q", body, code, a, status, accepted, rejected)
		}
		return a
	}
	// counted holds for what was answered with ?wait=.
	counted := func(t *testing.T, event string, pv, uv int64) {
		t.Helper()
		if p, u, ok := s.counts(event); !ok || p != pv || u != uv {
			t.Errorf("%s: PV %d, UV %d, %v; want %d and %d", event, p, u, ok, pv, uv)
		}
	}

	t.Run("ID01_NulInUser", func(t *testing.T) {
		answered(t, `[{"event":"id01","user":"a\u0000b"},{"event":"id01","user":"a"},{"event":"id01","user":"ab"}]`, 202, 2, "0 bad_user user")
		counted(t, "id01", 2, 2)
	})
	t.Run("ID03_InvalidUTF8", func(t *testing.T) {
		for _, user := range []string{"a\xff", "a\xfe", `\ud83d`} {
			answered(t, `{"event":"id03","user":"`+user+`"}`, 422, 0, "0 bad_utf8 user")
		}
		counted(t, "id03", 0, 0)
	})
	t.Run("ID05_LongURL", func(t *testing.T) {
		url := "/landing?click=" + strings.Repeat("y", 2900) + "&campaign=" + strings.Repeat("z", 75)
		answered(t, `{"event":"id05","user":"u","props":{"page":"`+url+`"}}`, 422, 0, "0 too_long props.page")
		answered(t, `{"event":"id05","user":"u","props":{"page":"`+url[:1024]+`"}}`, 202, 1)
		counted(t, "id05", 1, 1)
	})
	t.Run("ID07_EmptyUserIsNobody", func(t *testing.T) {
		line := func(n int, user string) string { return strings.Repeat(`{"event":"id07","user":`+user+"}\n", n) }
		answered(t, line(10, "null")+line(5, `""`)+line(3, `"u1"`), 202, 18)
		counted(t, "id07", 18, 1)
	})
	t.Run("ID08_IntegersKeepTheirDigits", func(t *testing.T) {
		answered(t, `[{"event":"id08a","user":9007199254740992},{"event":"id08a","user":9007199254740993}]`, 202, 2)
		counted(t, "id08a", 2, 2)
		answered(t, `[{"event":"id08a","user":"9007199254740992"},{"event":"id08a","user":"9007199254740993"}]`, 202, 2)
		counted(t, "id08a", 4, 2) // digit for digit the same
		answered(t, `[{"event":"id08b","user":12345678},{"event":"id08b","user":"12345678"}]`, 202, 2)
		counted(t, "id08b", 2, 1)
	})
	t.Run("ID09_OneEventTooLarge", func(t *testing.T) {
		good, big := `{"event":"id09","user":"u"}`, `{"event":"id09","user":"v","props":{"p":"`+strings.Repeat("x", 2_000_000)+`"}}`
		a := answered(t, "["+good+","+big+","+good+"]", 202, 2, "1 too_large ")
		if !strings.Contains(a.Rejected[0].Detail, "65536") {
			t.Errorf("%q does not name the limit", a.Rejected[0].Detail)
		}
		counted(t, "id09", 2, 1)
	})

	// The client sends again all after the first failure, the good one among them.
	t.Run("DD04_RetryAfterTheFirstFailure", func(t *testing.T) {
		item := func(i int, user string) string {
			return fmt.Sprintf(`{"event":"dd04","id":"dd04-%d","user":"%s"}`, i, user)
		}
		answered(t, "["+item(0, "a")+","+item(1, "null")+","+item(2, "c")+","+item(3, " ")+"]", 202, 2, "1 placeholder_user user", "3 placeholder_user user")
		if a := answered(t, "["+item(1, "b")+","+item(2, "c")+","+item(3, "d")+"]", 202, 2); a.Duplicates != 1 {
			t.Errorf("%d duplicates, want 1", a.Duplicates)
		}
		counted(t, "dd04", 4, 4)
	})
	t.Run("DD11_TwoFirstEventsOfAUserAtOnce", func(t *testing.T) {
		const users = 100
		now := time.Now().UnixMilli()
		errs := make(chan error, 2*users)
		for u := range users {
			var both sync.WaitGroup
			both.Add(2) // neither goes before the other is there
			for _, page := range []string{"/a", "/b"} {
				go func() {
					both.Done()
					both.Wait()
					errs <- s.send(http.DefaultClient, fmt.Sprintf(`{"event":"dd11","user":"u%d","ts":%d,"props":{"page":"%s"}}`, u, now, page))
				}()
			}
		}
		for range 2 * users {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		var ids []any
		for u := range users {
			ids = append(ids, fmt.Sprint("u", u))
		}
		plain := realtest.Redis(t).Client()
		plain.PFAdd(t.Context(), "uv", ids...)
		uv := plain.PFCount(t.Context(), "uv").Val() // what Redis says of 100 users
		if !near(uv, users) {
			t.Fatalf("the estimate for %d users is %d", users, uv)
		}
		s.counted("dd11", 2*users, uv)
	})
	t.Run("TS04_LateEventsGrowTheirDay", func(t *testing.T) {
		day := time.Now().UTC().AddDate(0, 0, -3)
		ts := func(days int) string { return day.AddDate(0, 0, days).Format(time.DateOnly) + "T10:00:00Z" }
		label := day.Format(time.DateOnly)
		days := func(want string) {
			t.Helper()
			got := ""
			for _, r := range s.series("ts04", day.AddDate(0, 0, -1).Format(time.DateOnly), day.AddDate(0, 0, 3).Format(time.DateOnly)).Rows {
				got += fmt.Sprint(r.PV, "/", r.UV, " ")
				if r.PV > 0 && r.Label != label {
					t.Errorf("PV %d on %s", r.PV, r.Label)
				}
			}
			if got != want {
				t.Errorf("PV/UV from the day before %s on: %s; want %s", label, got, want)
			}
		}
		answered(t, `{"event":"ts04","user":"u0","ts":"`+ts(0)+`"}`, 202, 1)
		days("0/0 1/1 0/0 0/0 ")
		e1 := `{"event":"ts04","user":"u1","id":"ts04-e1","ts":"` + ts(0) + `"}`
		answered(t, e1, 202, 1)
		days("0/0 2/2 0/0 0/0 ")
		answered(t, e1, 202, 0)
		answered(t, `{"event":"ts04","user":"u1","id":"ts04-e2","ts":"`+ts(-5)+`"}`, 422, 0, "0 too_late ts") // 8 days ago
		days("0/0 2/2 0/0 0/0 ")
	})

	// After all of these, and names with characters that mean something in a key.
	t.Run("RD08_EveryKeyIsDocumentedAndEnds", func(t *testing.T) {
		for _, name := range []string{"a}{b", "rd:08", "rd*08", "阅读", "$signin"} {
			answered(t, `{"event":"`+name+`","user":"u"}`, 202, 1)
		}
		rdb := s.redis()
		keys, err := rdb.Keys(t.Context(), "*").Result()
		if err != nil || len(keys) < 50 {
			t.Fatalf("%d keys, %v", len(keys), err)
		}
		documented := documentedKeys()
		var patterns []*regexp.Regexp
		for _, k := range documented {
			p := strings.Replace(regexp.QuoteMeta(k.Pattern), `\{SS\}`, `\{[0-9a-f]{2}\}`, 1)
			patterns = append(patterns, regexp.MustCompile("^"+regexp.MustCompile(`<[a-z ]+>`).ReplaceAllString(p, `([^{}*]+|\*)`)+"$"))
		}
		for _, key := range keys {
			ttl, err := rdb.TTL(t.Context(), key).Result()
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(key) })
			if i < 0 {
				t.Errorf("%s is not documented", key)
				continue
			}
			doc := documented[i].TTL
			if (doc == "none") != (ttl == -1) {
				t.Errorf("%s has TTL %v, documented is %s", key, ttl, doc)
			}
			if n, ok := strings.CutSuffix(doc, " d"); ok {
				days, err := strconv.Atoi(n)
				if err != nil || ttl < time.Duration(days-1)*24*time.Hour || ttl > time.Duration(days+3)*24*time.Hour {
					t.Errorf("%s has TTL %v, documented is %s after its period", key, ttl, doc)
				}
			}
		}
	})
}

// send posts a body of which everything must be accepted. Safe in any goroutine.
func (s *server) send(client *http.Client, body string) error {
	res, err := client.Post(s.url+"/v1/events?key="+s.key(writeName), "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusAccepted || !strings.Contains(string(text), `"rejected":[]`) {
		return fmt.Errorf("answer %d %s %v; want all accepted", res.StatusCode, text, err)
	}
	return nil
}

// Fifty writers send one popular event and, in between, a thousand others.
func TestRD12_OneHotEvent(t *testing.T) {
	const writers, batches, size, users, others = 50, 20, 100, 20_000, 1000
	s := start(t, t.TempDir())
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: writers}}
	errs := make(chan error, writers)
	for w := range writers {
		go func() {
			errs <- func() error {
				for b := range batches {
					var body strings.Builder
					for i := range size {
						n := (w*batches+b)*size + i
						fmt.Fprintf(&body, `{"event":"hot","user":"u%d","id":"hot-%d"}`+"\n", n%users, n)
					}
					fmt.Fprintf(&body, `{"event":"other-%d","user":"v","id":"other-%[1]d"}`+"\n", w*batches+b)
					if err := s.send(client, body.String()); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range writers {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	const all = writers * batches * (size + 1)
	until(t, fmt.Sprint(all, " events counted"), func() bool { pv, _, ok := s.counts("*"); return ok && pv >= all })
	if pv, uv, _ := s.counts("hot"); pv != writers*batches*size || !near(uv, users) {
		t.Errorf("PV %d, UV %d; want %d, and %d within 2.43 %%", pv, uv, writers*batches*size, users)
	}
	if pv, uv, _ := s.counts("*"); pv != all || !near(uv, users+1) {
		t.Errorf("of any event PV %d, UV %d; want %d, and %d within 2.43 %%", pv, uv, all, users+1)
	}
	for i := range others {
		if pv, uv, _ := s.counts(fmt.Sprint("other-", i)); pv != 1 || uv != 1 {
			t.Errorf("other-%d: PV %d, UV %d; want 1 and 1", i, pv, uv)
		}
	}
	s.stop()
}
