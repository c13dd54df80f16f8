package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// load reads a file's text, an environment and flags.
func load(t *testing.T, yaml string, environ []string, args ...string) (Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rollcall.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return Load(Sources{File: path, Environ: environ, Flags: fs})
}

func TestDefaultsAreValid(t *testing.T) {
	c, err := load(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Projects) != 1 || c.Projects[0].ID != "demo" || c.Projects[0].Zone != "UTC" || time.Duration(c.Projects[0].LateWindow) != 168*time.Hour {
		t.Errorf("projects = %+v; want demo in UTC with 168h", c.Projects)
	}
}

func TestFlagOverEnvironmentOverFileOverDefault(t *testing.T) {
	yaml := "shards: 2\njournal: {max_age: 10d, max_bytes: 1GiB}\nzone: Europe/Berlin\nlog: {level: warn}"
	c, err := load(t, yaml, []string{"ROLLCALL_SHARDS=4", "ROLLCALL_JOURNAL_MAX_BYTES=2GiB", "ROLLCALL_ZONE=Asia/Tokyo", "PATH=/bin"},
		"--shards", "8", "--journal.max_bytes=3GiB")
	if err != nil {
		t.Fatal(err)
	}
	f := func(name string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s = %v; want %v", name, got, want)
		}
	}
	f("shards (flag)", c.Shards, 8)
	f("journal.max_bytes (flag)", c.Journal.MaxBytes, Size(3<<30))
	f("zone (environment)", c.Zone, "Asia/Tokyo")
	f("the demo project's zone", c.Projects[0].Zone, "Asia/Tokyo")
	f("journal.max_age (file)", c.Journal.MaxAge, Duration(240*time.Hour))
	f("log.level (file)", c.Log.Level, "warn")
	f("dedup.window (default)", c.Dedup.Window, Duration(168*time.Hour))
}

func TestEveryFaultIsReportedAtOnce(t *testing.T) {
	yaml := `
lissten: ":80"
zone: Mars/Olympus
journal: {max_bites: 1, max_age: soon}
redis: 7
log: {level: loud}
projects:
- {id: Shop, zone: Local, colour: red}
- {id: a, keys: [{kind: owner, sha256: "12"}]}
- {id: a}
`
	_, err := load(t, yaml, []string{"ROLLCALL_SHARD=3"}, "--limits.max_events=0")
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"\n  lissten: there is no such option; did you mean listen?",
		"\n  journal.max_bites: there is no such option; did you mean max_bytes?",
		"\n  journal.max_age: want a duration",
		"\n  redis: want options below it",
		"\n  zone: \"Mars/Olympus\" is no IANA zone",
		"\n  log.level: \"loud\": want one of debug, info, warn, error",
		"\n  projects[0].colour: there is no such option",
		"\n  projects[0].id: \"Shop\"",
		"\n  projects[0].zone: \"Local\"",
		"\n  projects[1].keys[0].kind: \"owner\"",
		"\n  projects[1].keys[0].sha256: want the 64 hex digits",
		"\n  projects[2].id: \"a\" comes twice",
		"\n  ROLLCALL_SHARD: there is no such option; did you mean ROLLCALL_SHARDS?",
		"\n  limits.max_events: 0: want 1 to 5000",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in:\n%v", want, err)
		}
	}
	if n := len(err.(Faults)); n != 14 {
		t.Errorf("%d faults; want 14:\n%v", n, err)
	}
}

// Kubernetes puts these into every pod beside a service named rollcall.
func TestKubernetesServiceVariablesAreNoFault(t *testing.T) {
	_, err := load(t, "", []string{"ROLLCALL_PORT=tcp://10.0.0.1:80", "ROLLCALL_PORT_80_TCP=x", "ROLLCALL_SERVICE_HOST=10.0.0.1", "ROLLCALL_KEY=k"})
	if err != nil {
		t.Error(err)
	}
}

func TestMissingFile(t *testing.T) {
	_, err := Load(Sources{File: filepath.Join(t.TempDir(), "none.yaml")})
	if err == nil || !strings.Contains(err.Error(), "none.yaml: no such file") {
		t.Errorf("error = %v; want one that names the file", err)
	}
}

func TestSecretsAreHiddenAndNothingElse(t *testing.T) {
	f := func(in Secret, want string) {
		t.Helper()
		for _, got := range []string{in.String(), fmt.Sprintf("%v", in), strings.Trim(fmt.Sprintf("%#v", in), `"`)} {
			if got != want {
				t.Errorf("%q prints %q; want %q", string(in), got, want)
			}
		}
	}
	f("", "")
	f("redis://:hunter2@db:6379/1", "redis://***@db:6379/1")
	f("rediss://u:hunter2@db?password=hunter2", "rediss://***@db?***")
	f("nats://a:1,b:2", "nats://a:1,b:2")
	f("hunter2", "***")
	f("redis://u:%zz@h", "***")

	c, err := load(t, "redis: {url: 'redis://:hunter2@db:6379'}", []string{"ROLLCALL_JOURNAL_URL=nats://u:hunter2@n:4222"})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := c.Print(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "hunter2") || !strings.Contains(b.String(), "nats://***@n:4222") {
		t.Errorf("printed:\n%s", b.String())
	}
}

// What is printed is a file that gives the same configuration.
func TestPrintReadsBack(t *testing.T) {
	yaml := "projects:\n- {id: shop, zone: Asia/Kolkata, late_window: 36h, keys: [{kind: read, sha256: '" + strings.Repeat("0a", 32) + "'}]}\n- id: b\n"
	want, err := load(t, yaml, nil, "--limits.max_body", "64KiB")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := want.Print(&b); err != nil {
		t.Fatal(err)
	}
	got, err := load(t, b.String(), nil)
	if err != nil {
		t.Fatalf("%v in:\n%s", err, b.String())
	}
	for i := range got.Projects { // an empty list and no list are the same
		if len(got.Projects[i].Keys) == 0 {
			got.Projects[i].Keys = nil
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v\nfrom\n%s", got, want, b.String())
	}
}

func TestDurationAndSize(t *testing.T) {
	d := func(in string, want time.Duration, ok bool) {
		t.Helper()
		var got Duration
		if err := got.UnmarshalText([]byte(in)); (err == nil) != ok || ok && time.Duration(got) != want {
			t.Errorf("duration %q = %v, %v; want %v, ok %v", in, got, err, want, ok)
		}
	}
	d("25s", 25*time.Second, true)
	d("7d", 168*time.Hour, true)
	d("1d12h", 36*time.Hour, true)
	d("0s", 0, true)
	d("", 0, false)
	d("d", 0, false)
	d("-1h", 0, false)
	d("1d-1h", 0, false)
	d("106752d", 0, false)
	d("7", 0, false)
	s := func(in string, want int64, ok bool) {
		t.Helper()
		var got Size
		if err := got.UnmarshalText([]byte(in)); (err == nil) != ok || ok && int64(got) != want {
			t.Errorf("size %q = %d, %v; want %d, ok %v", in, got, err, want, ok)
		}
	}
	s("0", 0, true)
	s("8388608", 8<<20, true)
	s("8MiB", 8<<20, true)
	s("16 GB", 16e9, true)
	s("-1", 0, false)
	s("9999999999TiB", 0, false)
	s("1.5GiB", 0, false)
	s("MiB", 0, false)
}
