package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/realtest"
)

// copyOf puts a file of the shared data into a folder of its own: its rejects land beside it.
func copyOf(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(realtest.Shared(t), "data", name))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func combinedArgs(path string) []string {
	return []string{"import", path, "--format", "combined", "--event", "page_view", "--user", "addr", "--prop", "page=path"}
}

func ratingsArgs(path string) []string {
	return []string{"import", path, "--format", "csv", "--event", "rating", "--user", "userId", "--ts", "timestamp", "--value", "rating", "--prop", "movie=movieId"}
}

func imported(t *testing.T, s *server, args []string, want summary) {
	t.Helper()
	out, errs, code := cli(t, s.dir, args...)
	if code != 0 || !strings.HasPrefix(out, want.String()+" in ") || strings.Contains(out, "not counted yet") {
		t.Fatalf("%v: exit %d\n%s%s\nwant %s", args, code, out, errs, want)
	}
}

// series asks through the command line, as JSON.
func (s *server) series(event, from, to string, more ...string) (c series) {
	s.t.Helper()
	out, errs, code := cli(s.t, s.dir, append([]string{"counts", "--event", event, "--from", from, "--to", to, "--json"}, more...)...)
	if code != 0 {
		s.t.Fatalf("counts: exit %d %s", code, errs)
	}
	if err := json.Unmarshal([]byte(out), &c); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// near is within three standard errors of a sketch.
func near(got, want int64) bool { return math.Abs(float64(got-want)) <= 0.0243*float64(want) }

func (s *server) days(from, to string, pv, uv []int64, totalPV, totalUV int64) {
	s.t.Helper()
	c := s.series("page_view", from, to)
	if len(c.Rows) != len(pv) {
		s.t.Fatalf("%d rows; want %d", len(c.Rows), len(pv))
	}
	for i, r := range c.Rows {
		if r.PV != pv[i] || !near(r.UV.Value, uv[i]) || r.UV.Method != "hll" || !r.Complete {
			s.t.Errorf("%s: %+v; want PV %d, UV near %d", r.Label, r, pv[i], uv[i])
		}
	}
	if c.Total.PV != totalPV || !near(c.Total.UV.Value, totalUV) {
		s.t.Errorf("total %+v; want PV %d, UV near %d", c.Total, totalPV, totalUV)
	}
}

func TestImportOfAnAccessLog(t *testing.T) {
	path := copyOf(t, "access.log")
	s := start(t, t.TempDir())
	want := func() {
		t.Helper()
		s.days("2015-05-17", "2015-05-21", []int64{1632, 2893, 2896, 2578}, []int64{341, 627, 561, 505}, 9999, 1753)
	}
	imported(t, s, combinedArgs(path), summary{Taken: 9999, Rejected: 1})
	want()
	rejects, err := os.ReadFile(path + ".rejects")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(strings.TrimSuffix(string(rejects), "\n"), "\t")
	lines, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var number int
	if len(parts) != 3 {
		t.Fatalf("rejects %q; want line number, reason and text of one line", rejects)
	}
	if _, err := fmt.Sscan(parts[0], &number); err != nil || parts[1] == "" || strings.Split(string(lines), "\n")[number-1] != parts[2] {
		t.Errorf("rejects %q: %v; want the line as it stands in the file", rejects, err)
	}

	imported(t, s, combinedArgs(path), summary{Duplicates: 9999, Rejected: 1})
	want()
	out, _, code := cli(t, s.dir, "counts", "--event", "page_view", "--from", "2015-05-17", "--to", "2015-05-21")
	for _, cell := range []string{"2015-05-17  1632", "2015-05-18  2893", "2015-05-19  2896", "2015-05-20  2578", "total       9999", "0.81 %"} {
		if code != 0 || !strings.Contains(out, cell) {
			t.Errorf("counts prints, exit %d\n%s\nwant %q in it", code, out, cell)
		}
	}
	if _, _, code := cli(t, s.dir, append(combinedArgs(path), "--strict")...); code != 1 {
		t.Errorf("--strict with a refused line: exit %d; want 1", code)
	}
}

func TestImportFollowsTheProjectsZone(t *testing.T) {
	s := start(t, t.TempDir(), "--zone", "Asia/Shanghai")
	imported(t, s, combinedArgs(copyOf(t, "access.log")), summary{Taken: 9999, Rejected: 1})
	s.days("2015-05-17", "2015-05-22", []int64{663, 2906, 2881, 2876, 673}, []int64{137, 601, 629, 534, 163}, 9999, 1753)
}

// The import is killed in the middle, run again, killed with its server, and run again.
func TestImportOfRatingsThroughKills(t *testing.T) {
	path, dir := copyOf(t, "ratings.csv"), t.TempDir()
	s := start(t, dir)
	killed := func() {
		t.Helper()
		before := s.metric(`rollcall_ingest_accepted_total{project="demo"}`)
		// Small batches, one at a time: it would run for minutes.
		cmd := exec.Command(binary, append(ratingsArgs(path), "--data", dir, "--batch", "50", "--in-flight", "1")...)
		cmd.Env = cleanEnv()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		until(t, "some of the import is in", func() bool { return s.metric(`rollcall_ingest_accepted_total{project="demo"}`) > before })
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil || !cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
			t.Fatalf("the import ended by itself: %v", err)
		}
	}
	killed()
	killed()
	s.kill()
	s = start(t, dir)
	out, errs, code := cli(t, dir, ratingsArgs(path)...)
	var got summary
	if _, err := fmt.Sscanf(out, "taken %d, duplicates %d, rejected %d", &got.Taken, &got.Duplicates, &got.Rejected); err != nil || code != 0 {
		t.Fatalf("exit %d: %v\n%s%s", code, err, out, errs)
	}
	if got.Taken+got.Duplicates != 100_004 || got.Rejected != 16 || got.Duplicates == 0 {
		t.Errorf("after the kills: %s; want 100004 taken or there before, some of them before, and 16 rejected", got)
	}
	s.sameRatings(path)
	rejects, err := os.ReadFile(path + ".rejects")
	if err != nil || bytes.Count(rejects, []byte("\n")) != 16 {
		t.Errorf("rejects:\n%s%v; want 16 lines", rejects, err)
	}
	imported(t, s, ratingsArgs(path), summary{Duplicates: 100_004, Rejected: 16})
}

// sameRatings compares three years at a time, the most that one question may span, with the file itself.
func (s *server) sameRatings(path string) {
	s.t.Helper()
	file, err := os.Open(path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		s.t.Fatal(err)
	}
	sum := int64(0)
	for year := 1995; year < 2018; year += 3 {
		from, to := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(year+3, 1, 1, 0, 0, 0, 0, time.UTC)
		pv, users := int64(0), map[string]bool{}
		for _, r := range rows[1:] {
			ts, err := strconv.ParseInt(r[3], 10, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			if from.Unix() <= ts && ts < to.Unix() {
				pv++
				users[r[0]] = true
			}
		}
		c := s.series("rating", from.Format(time.DateOnly), to.Format(time.DateOnly), "--interval", "month")
		if c.Total.PV != pv || !near(c.Total.UV.Value, int64(len(users))) {
			s.t.Errorf("%d to %d: PV %d, UV %v; want %d and near %d", year, year+3, c.Total.PV, c.Total.UV, pv, len(users))
		}
		sum += c.Total.PV
	}
	if sum != 100_004 {
		s.t.Errorf("all years have PV %d; want 100004", sum)
	}
}

// metric is the value of a series, named with its labels if it has some.
func (s *server) metric(name string) (v float64) {
	s.t.Helper()
	page := s.get("/metrics")
	_, rest, ok := strings.Cut(page, "\n"+name+" ")
	if !ok && strings.HasSuffix(name, "}") {
		return 0 // a series begins with its first event
	}
	if !ok {
		s.t.Fatalf("no %s in /metrics", name)
	}
	if _, err := fmt.Sscan(rest, &v); err != nil {
		s.t.Fatal(err)
	}
	return v
}
