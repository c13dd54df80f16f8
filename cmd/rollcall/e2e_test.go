package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestEveryFormIsCounted(t *testing.T) {
	s := start(t, t.TempDir())
	f := func(status, received, accepted int, body string, header ...string) {
		t.Helper()
		code, a := s.post("?wait=30s", body, header...)
		if code != status || a.Received != received || a.Accepted != accepted || a.Applied == nil || !*a.Applied {
			t.Errorf("%.60q: answer %d %+v; want %d, %d received, %d accepted, applied", body, code, a, status, received, accepted)
		}
	}
	f(202, 1, 1, `{"event":"form","user":"u1"}`)
	f(202, 2, 2, `[{"event":"form","user":"u1"},{"event":"form","user":"u2"}]`)
	f(202, 1, 1, `{"events":[{"event":"form","user":"u3"}],"sent_at":"`+time.Now().UTC().Format(time.RFC3339)+`"}`)
	f(202, 3, 2, "{\"event\":\"form\",\"user\":\"u4\"}\n{\"event\":\n{\"event\":\"form\"}\n", "Content-Type", "text/plain")
	f(202, 1, 1, zip(t, `{"event":"form","user":"u5"}`), "Content-Encoding", "gzip")
	f(422, 1, 0, `{"event":"form","user":"null"}`)
	f(202, 1, 1, `{"event":"form","user":"u6","id":"a"}`)
	if code, a := s.post("?wait=30s", `{"event":"form","user":"u7","id":"a"}`); code != 202 || a.Accepted != 0 || a.Duplicates != 1 {
		t.Errorf("the same id again: %d %+v; want one duplicate", code, a)
	}
	s.counted("form", 8, 6)
	s.counted("*", 8, 6)
	s.counted("other", 0, 0)

	out, errs, code := cli(t, s.dir, "counts", "--event", "form")
	if code != 0 || !strings.Contains(out, "total") || !strings.Contains(out, "8") {
		t.Errorf("counts: exit %d\n%s%s", code, out, errs)
	}
	if out, _, code := cli(t, s.dir, "counts", "--event", "form", "--csv"); code != 0 || len(strings.Split(strings.TrimSpace(out), "\n")) != 8 {
		t.Errorf("counts --csv: exit %d\n%s; want a header and seven days", code, out)
	}
	if out, _, code := cli(t, s.dir, "counts", "--event", "form", "--json"); code != 0 || !json.Valid([]byte(out)) {
		t.Errorf("counts --json: exit %d\n%s", code, out)
	}
	if _, errs, code := cli(t, s.dir, "counts", "--event", "form", "--from", "x", "--to", "y"); code != 1 || !strings.Contains(errs, "bad_time") {
		t.Errorf("counts --from x: exit %d %s; want 1 and bad_time", code, errs)
	}
	s.stop()
}

// The curl line of the banner is copied by people: it must work as it is.
func TestTheBannersCurlWorks(t *testing.T) {
	s := start(t, t.TempDir())
	var curl string
	for l := range strings.Lines(s.stdout.String()) {
		if strings.Contains(l, "curl ") {
			curl = strings.TrimSpace(l)
		}
	}
	out, err := exec.Command("sh", "-c", curl).CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"accepted":1`) || !strings.Contains(string(out), `"applied":true`) {
		t.Errorf("%q: %v\n%s", curl, err, out)
	}
	for _, name := range []string{adminName, readName} {
		if strings.Contains(s.stdout.String(), s.key(name)) || !strings.Contains(s.stdout.String(), name) {
			t.Errorf("stdout is no terminal: it should name %s and not show its key", name)
		}
	}
	s.counted("page_view", 1, 1)
}

func TestKilledServerAndRedisLoseNothing(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	sent := 0
	send := func(n int) {
		var b strings.Builder
		for range n {
			sent++
			fmt.Fprintf(&b, `{"event":"k","user":"u%d","id":"%d"}`+"\n", sent%10, sent)
		}
		s.accepted("", b.String(), n)
	}
	for range 3 {
		send(100)
		send(1)
		s.kill()
		s = start(t, dir)
		s.counted("k", int64(sent), 10)
		send(50)
		pid := s.redisPID()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		send(50) // with Redis away
		s.counted("k", int64(sent), 10)
	}
	// The same ids again: a restart forgets none.
	s.kill()
	s = start(t, dir)
	if _, a := s.post("?wait=30s", `[{"event":"k","user":"x","id":"1"},{"event":"k","user":"x","id":"`+fmt.Sprint(sent)+`"}]`); a.Duplicates != 2 {
		t.Errorf("two old ids: %+v; want two duplicates", a)
	}
	s.counted("k", int64(sent), 10)
	s.stop()
}

func (s *server) redisPID() (pid int) {
	s.t.Helper()
	info, err := s.redis().Info(context.Background(), "server").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "process_id:")
	if _, err := fmt.Sscan(rest, &pid); err != nil || pid <= 1 {
		s.t.Fatalf("no pid in %q: %v", info, err)
	}
	return pid
}

func TestAChangedZoneOrShardsIsRefused(t *testing.T) {
	dir := t.TempDir()
	start(t, dir, "--zone", "Asia/Shanghai").stop()
	f := func(says string, args ...string) {
		t.Helper()
		s := launch(t, dir, args...)
		if code := s.wait(); code != 1 || !strings.Contains(s.stderr.String(), says) || !strings.Contains(s.stderr.String(), "new data folder") {
			t.Errorf("%v: exit %d\n%s\nwant 1, %q and the way out", args, code, s.stderr.String(), says)
		}
	}
	f("was counted in zone Asia/Shanghai, the configuration says UTC")
	f("are in 16 shards, the configuration says 4", "--zone", "Asia/Shanghai", "--shards", "4")
	start(t, dir, "--zone", "Asia/Shanghai").stop()
}

// What was counted in another zone and other shards is counted anew from the journal.
func TestRebuildTakesANewZoneAndShards(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	file := filepath.Join(t.TempDir(), "two.ndjson")
	lines := `{"event":"a","user":"u1","ts":"2026-03-01T15:00:00Z"}` + "\n" + `{"event":"a","user":"u2","ts":"2026-03-01T17:00:00Z"}` + "\n"
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	imported(t, s, []string{"import", file, "--format", "ndjson"}, summary{Taken: 2})
	days := func(first, second int64) {
		t.Helper()
		c := s.series("a", "2026-03-01", "2026-03-03")
		if len(c.Rows) != 2 || c.Rows[0].PV != first || c.Rows[1].PV != second || c.Total.UV.Value != 2 {
			t.Errorf("%+v; want PV %d and %d, UV 2 in all", c, first, second)
		}
	}
	days(2, 0)
	s.stop()

	other := []string{"--zone", "Asia/Shanghai", "--shards", "4"}
	if _, errs, code := cli(t, dir, "rebuild", "orders"); code != 1 || !strings.Contains(errs, "counters") {
		t.Errorf("rebuild of a projection that is not there: exit %d, %s", code, errs)
	}
	if _, errs, code := cli(t, dir, append([]string{"rebuild", "counters"}, other...)...); code != 1 || !strings.Contains(errs, "rebuild all") {
		t.Errorf("rebuild of a part for other shards: exit %d, %s", code, errs)
	}
	out, errs, code := cli(t, dir, append([]string{"rebuild", "all"}, other...)...)
	if code != 0 {
		t.Fatalf("rebuild: exit %d\n%s%s", code, out, errs)
	}
	s = start(t, dir, other...)
	until(t, "both are counted again", func() bool { return s.series("a", "2026-03-01", "2026-03-03").Total.PV == 2 })
	days(1, 1)
	keys := func(pattern string) []string {
		t.Helper()
		keys, err := s.redis().Keys(context.Background(), pattern).Result()
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	if here, left := keys("rc:{0[0-3]}:counters:*"), keys("rc:{0[4-9a-f]}:*"); len(here) == 0 || len(left) != 0 {
		t.Errorf("keys of the four shards: %v; left of the others: %v", here, left)
	}
	imported(t, s, []string{"import", file, "--format", "ndjson"}, summary{Duplicates: 2})
	s.stop()
}

// Two projects with keys of their own in the configuration. One id in both is two events.
func TestDD06_AnIDBelongsToItsProject(t *testing.T) {
	dir := t.TempDir()
	key := func(kind, project string) string { return "rc" + kind + "_" + project + "_0123456789" }
	yaml := "projects:\n"
	for _, project := range []string{"a", "b"} {
		yaml += fmt.Sprintf("- {id: %s, keys: [{kind: write, sha256: '%x'}, {kind: read, sha256: '%x'}]}\n",
			project, sha256.Sum256([]byte(key("w", project))), sha256.Sum256([]byte(key("r", project))))
	}
	file := filepath.Join(dir, "test.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, dir, "--config", file)
	for _, project := range []string{"a", "b"} {
		s.writeKey, s.readKey = key("w", project), key("r", project)
		s.accepted("?wait=30s", `{"event":"e","user":"u","id":"m1"}`, 1)
		if _, a := s.post("?wait=30s", `{"event":"e","user":"u","id":"m1"}`); a.Duplicates != 1 {
			t.Errorf("m1 again in %s: %+v; want a duplicate", project, a)
		}
		s.counted("e", 1, 1)
		out, errs, code := cli(t, dir, "counts", "--event", "e", "--project", project)
		if code != 0 || !strings.Contains(out, "total          1   1") {
			t.Errorf("counts --project %s: exit %d\n%s%s", project, code, out, errs)
		}
	}
	if _, errs, code := cli(t, dir, "counts"); code != 1 || !strings.Contains(errs, "--project") {
		t.Errorf("counts without a project: exit %d, %s", code, errs)
	}
	if _, err := os.Stat(filepath.Join(dir, writeName)); !os.IsNotExist(err) {
		t.Errorf("a write key was made beside those of the configuration: %v", err)
	}
	s.stop()
}

func TestSecondServerOnTheSameFolderIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	url, err := os.ReadFile(filepath.Join(dir, urlName))
	if err != nil {
		t.Fatal(err)
	}
	second := exec.Command(binary, "serve", "--data", dir, "--listen", "127.0.0.1:0")
	second.Env = cleanEnv()
	out, err := second.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "in use") {
		t.Errorf("the second server: %v\n%s; want an error that says the folder is in use", err, out)
	}
	if now, err := os.ReadFile(filepath.Join(dir, urlName)); err != nil || string(now) != string(url) {
		t.Errorf("the first server's url file is now %q, %v", now, err)
	}
	s.accepted("?wait=30s", `{"event":"a"}`, 1)
	s.stop()
}
