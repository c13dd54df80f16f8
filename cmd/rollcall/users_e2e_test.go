package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// ask gets JSON with the read key.
func (s *server) ask(path string, to any) {
	s.t.Helper()
	res, body := s.request("GET", path, "", "Authorization", "Bearer "+s.key(readName))
	if res.StatusCode != http.StatusOK {
		s.t.Fatalf("GET %s: %d %s", path, res.StatusCode, body)
	}
	if err := json.Unmarshal([]byte(body), to); err != nil {
		s.t.Fatal(err)
	}
}

// overlap is how many users an expression has.
func (s *server) overlap(expression string) (users, of int64) {
	s.t.Helper()
	res, body := s.request("POST", "/v1/users/count", `{"expression":`+expression+`}`, "Authorization", "Bearer "+s.key(readName))
	var o struct {
		Users struct {
			Value  int64
			Method string
		}
		Of int64
	}
	if err := json.Unmarshal([]byte(body), &o); err != nil || res.StatusCode != http.StatusOK || o.Users.Method != "exact" {
		s.t.Fatalf("%s: %d %s, %v", expression, res.StatusCode, body, err)
	}
	return o.Users.Value, o.Of
}

// The public ratings have known users: through a kill of server and Redis in the middle of the import, and after it, they come out exactly.
func TestUsersOfRatings(t *testing.T) {
	path, dir := copyOf(t, "ratings.csv"), t.TempDir()
	s := start(t, dir)
	imported(t, s, ratingsArgs(path), summary{Taken: 100_004, Rejected: 16})
	check := func() {
		t.Helper()
		const in15, in16 = `{"event":"*","from":"2015-01-01","to":"2016-01-01"}`, `{"event":"*","from":"2016-01-01","to":"2017-01-01"}`
		for expression, want := range map[string]int64{
			in15: 69, in16: 48, `{"and":[` + in15 + `,` + in16 + `]}`: 16, `{"and":[` + in16 + `,{"not":` + in15 + `}]}`: 32,
			`{"or":[` + in15 + `,` + in16 + `]}`: 101, `{"not":{"or":[` + in15 + `,` + in16 + `]}}`: 570,
		} {
			if users, of := s.overlap(expression); users != want || of != 671 {
				t.Errorf("%s: %d of %d users, want %d of 671", expression, users, of, want)
			}
		}
		var a struct {
			Rows []struct{ Active, New, Returning, Resurrected int }
		}
		s.ask("/v1/active?from=2015-01-01&to=2016-01-01&interval=month", &a)
		var fresh []int
		for _, r := range a.Rows {
			fresh = append(fresh, r.New)
			if r.Active != r.New+r.Returning+r.Resurrected {
				t.Errorf("%+v does not add up", r)
			}
		}
		if want := []int{1, 4, 2, 2, 4, 3, 11, 2, 4, 3, 13, 3}; !slices.Equal(fresh, want) {
			t.Errorf("new users by month of 2015 are %v, want %v", fresh, want)
		}
		var u struct {
			Total struct {
				Exact, HLL struct{ Value int64 }
				Error      *float64 `json:"real_error"`
			}
		}
		s.ask("/v1/users?from=2015-01-01&to=2016-01-01&interval=month&method=both", &u)
		if u.Total.Exact.Value != 69 || u.Total.HLL.Value < 67 || u.Total.HLL.Value > 71 || u.Total.Error == nil {
			t.Errorf("users of 2015: %+v, want 69 and a sketch nearby", u.Total)
		}
		var m struct {
			Rows []struct {
				Size  int
				Cells []struct{ Users int }
			}
		}
		s.ask("/v1/retention?from=2015-01-01&to=2016-01-01&interval=month&periods=3", &m)
		sizes := 0
		for _, r := range m.Rows {
			sizes += r.Size
			if r.Cells[0].Users != r.Size {
				t.Errorf("%+v: the cohort is not all there in its own month", r)
			}
		}
		if sizes != 52 {
			t.Errorf("cohorts of 2015 have %d users, want 52", sizes)
		}
	}
	check()
	s.kill()
	s = start(t, dir)
	check()
	// Counted again into an empty Redis, everything is the same.
	s.stop()
	if out, errs, code := cli(t, dir, "rebuild", "all"); code != 0 {
		t.Fatalf("%s%s", out, errs)
	}
	s = start(t, dir)
	until(t, "everything is counted again", func() bool {
		pv, _, ok := s.counts("rating")
		return ok && pv == 0 && s.metric("rollcall_projector_offset") == s.metric("rollcall_journal_last")
	})
	check()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"users", "--from", "2015-01-01", "--to", "2016-01-01", "--interval", "month"}, "total       69\n"},
		{[]string{"active", "--from", "2015-01-01", "--to", "2016-01-01", "--interval", "month"}, "2015-11      17   13          2            2 "},
		{[]string{"retention", "--from", "2015-01-01", "--to", "2016-01-01", "--interval", "month", "--periods", "2"}, "2015-11     13  100.0  15.4  15.4"},
		{[]string{"overlap", "*@2016-01-01..2017-01-01", "!*@2015-01-01..2016-01-01"}, "all of them                          32\n"},
		{[]string{"cohorts", "save", "lost", "*@2015-01-01..2016-01-01", "!*@2016-01-01..2017-01-01"}, "lost"},
		{[]string{"overlap", "cohort:lost", "--csv"}, "users,,,53\n"},
		{[]string{"active", "--from", "2015-01-01", "--to", "2015-02-01", "--interval", "month", "--csv"}, "2015-01,2015-01-01T00:00:00Z,2015-02-01T00:00:00Z,5,1,3,1,4,2,5,0.116129,true,\n"},
		{[]string{"cohorts", "delete", "lost"}, "lost is deleted"},
	} {
		if out, errs, code := cli(t, dir, c.args...); code != 0 || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit %d\n%s%s\nwant %q", c.args, code, out, errs, c.want)
		}
	}
	out, errs, code := cli(t, dir, "overlap", "--list", "*@2016-01-01..2017-01-01", "!*@2015-01-01..2016-01-01")
	users := strings.Fields(out)[1:]
	slices.Sort(users)
	if code != 0 || len(users) != 32 || len(slices.Compact(users)) != 32 {
		t.Errorf("%d users are listed\n%s%s", len(users), out, errs)
	}
	s.stop()
}

// A late event that is in changes the next answer about its day, though answers about the past are kept, and marks the day as restated.
func TestALateEventIsSeenAtOnce(t *testing.T) {
	s := start(t, t.TempDir())
	day := time.Now().UTC().AddDate(0, 0, -2)
	send := func(user string) {
		t.Helper()
		body := fmt.Sprintf(`{"event":"page_view","user":%q,"ts":%q,"props":{"page":"/%s"}}`, user, day.Format(time.RFC3339), user)
		s.accepted("?wait=10s", body, 1)
	}
	span := "from=" + day.Format(time.DateOnly) + "&to=" + day.AddDate(0, 0, 1).Format(time.DateOnly)
	type row struct {
		PV       int64
		Exact    struct{ Value int64 }
		Restated *struct{ Changes int64 }
		Values   []struct{ Value string }
	}
	for i := range int64(5) {
		send(fmt.Sprint("u", i))
		var users, counts, pages struct{ Total row }
		for range 2 { // the second one is from memory
			s.ask("/v1/users?"+span, &users)
			s.ask("/v1/counts?event=page_view&"+span, &counts)
			s.ask("/v1/breakdown?event=page_view&prop=page&"+span, &pages)
			if users.Total.Exact.Value != i+1 || users.Total.Restated == nil || users.Total.Restated.Changes != i+1 ||
				counts.Total.PV != i+1 || counts.Total.Restated == nil || counts.Total.Restated.Changes != i+1 || pages.Total.PV != i+1 || len(pages.Total.Values) != int(i)+1 {
				t.Fatalf("after %d late events: users %+v, counts %+v, pages %+v", i+1, users, counts, pages)
			}
		}
	}
	s.stop()
}

// Breakdowns that a project gets while the server runs count from then on, and sum up to what the event has.
func TestBreakdownsOfAccessLog(t *testing.T) {
	s := start(t, t.TempDir())
	imported(t, s, combinedArgs(copyOf(t, "access.log")), summary{Taken: 9999, Rejected: 1})
	var b struct {
		Total struct {
			PV, Rest int64
			Values   []struct {
				Value string
				PV    int64
				UV    struct{ Value int64 }
			}
			Other, None *struct{ PV int64 }
		}
	}
	s.ask("/v1/breakdown?event=page_view&prop=page&from=2015-05-17&to=2015-05-21&limit=3", &b)
	got := map[string]int64{}
	sum := b.Total.Rest
	for _, v := range b.Total.Values {
		got[v.Value] = v.PV
		sum += v.PV
		if v.UV.Value < 1 || v.UV.Value > v.PV {
			t.Errorf("%+v", v)
		}
	}
	if b.Total.Other != nil {
		sum += b.Total.Other.PV
	}
	if b.Total.PV != 9999 || sum != 9999 || len(got) != 3 {
		t.Errorf("%+v; want 9,999 in all", b.Total)
	}
	want := topPages(t, 3)
	if !maps.Equal(got, want) {
		t.Errorf("top pages %v, want %v", got, want)
	}
	out, errs, code := cli(t, s.dir, "breakdown", "--event", "page_view", "--prop", "page", "--from", "2015-05-17", "--to", "2015-05-21", "--limit", "3")
	if code != 0 || !strings.Contains(out, "total ") || !strings.Contains(out, "less frequent ones") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	s.stop()
}

// topPages are the most frequent pages of access.log, read the plain way.
func topPages(t *testing.T, n int) map[string]int64 {
	t.Helper()
	data, err := os.ReadFile(copyOf(t, "access.log"))
	if err != nil {
		t.Fatal(err)
	}
	pv := map[string]int64{}
	for line := range strings.Lines(string(data)) {
		quoted := strings.Split(line, `"`)
		if len(quoted) < 2 {
			continue
		}
		request := strings.Fields(quoted[1])
		if len(request) == 3 {
			page, _, _ := strings.Cut(request[1], "?")
			page, _, _ = strings.Cut(page, "#")
			pv[page]++
		}
	}
	pages := slices.SortedFunc(maps.Keys(pv), func(a, b string) int { return int(pv[b] - pv[a]) })
	top := map[string]int64{}
	for _, p := range pages[:n] {
		top[p] = pv[p]
	}
	return top
}
