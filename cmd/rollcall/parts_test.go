package main

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollcall/rollcall/ingest/files"
	"github.com/rollcall/rollcall/internal/config"
	"github.com/rollcall/rollcall/internal/project"
	"github.com/rollcall/rollcall/internal/realtest"
)

func TestKeyFilesAreMadeOnceAndPrivate(t *testing.T) {
	n := &node{c: config.Default(), log: slog.New(slog.DiscardHandler)}
	n.c.Data = t.TempDir()
	first, err := n.keyFile(adminName, project.Admin)
	if err != nil {
		t.Fatal(err)
	}
	again, err := n.keyFile(adminName, project.Admin)
	if err != nil || again != first || !strings.HasPrefix(first, "rca_") || len(first) != 44 {
		t.Errorf("keys %q, then %q, %v; want the same rca_ key of 44 characters", first, again, err)
	}
	path := filepath.Join(n.c.Data, adminName)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	other, err := n.keyFile(writeName, project.Write)
	if err != nil || other[4:] == first[4:] {
		t.Errorf("two keys %q and %q, %v", first, other, err)
	}
	if files, err := os.ReadDir(n.c.Data); err != nil || len(files) != 2 {
		t.Errorf("%d files in the folder, %v; want 2", len(files), err)
	}
	for _, bad := range []string{"", "rca_", "rcw_0123456789012345678901234", "\x00"} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if key, err := n.keyFile(adminName, project.Admin); err == nil {
			t.Errorf("a file of %q was taken as key %q", bad, key)
		}
	}
}

func TestInstallIsRecordedOnceAndCompared(t *testing.T) {
	r := realtest.Redis(t).Client()
	ctx := t.Context()
	first := map[string]string{"shards": "16", "journal": "j1", "zone:demo": "UTC"}
	have, err := recordInstall(ctx, r, first)
	if err != nil {
		t.Fatal(err)
	}
	if err := compareInstall(first, have); err != nil {
		t.Errorf("the first start: %v", err)
	}
	f := func(want map[string]string, says ...string) {
		t.Helper()
		have, err := recordInstall(ctx, r, want)
		if err != nil {
			t.Fatal(err)
		}
		err = compareInstall(want, have)
		if (err != nil) != (len(says) > 0) || err != nil && !errors.Is(err, errMismatch) {
			t.Fatalf("%v: %v", want, err)
		}
		for _, s := range says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%v: %v; want %q in it", want, err, s)
			}
		}
	}
	f(first)
	f(map[string]string{"shards": "16", "journal": "j1", "zone:shop": "Asia/Tokyo"}) // a new project
	f(first)
	f(map[string]string{"shards": "8", "journal": "j1"}, "in 16 shards, the configuration says 8", "new data folder")
	f(map[string]string{"shards": "16", "journal": "j2"}, "from journal j1, this one is j2")
	f(map[string]string{"shards": "16", "journal": "j1", "zone:demo": "Asia/Tokyo", "zone:shop": "UTC"},
		"project demo was counted in zone UTC, the configuration says Asia/Tokyo", "project shop was counted in zone Asia/Tokyo")
	if ttl := r.TTL(ctx, installKey).Val(); ttl != -1 {
		t.Errorf("TTL %v; want none", ttl)
	}
}

func TestTableAlignsNumbers(t *testing.T) {
	var b strings.Builder
	writeTable(&b, [][]string{{"day", "PV", "UV"}, {"2015-05-17", "7", "12345"}, {"日", "123", "1"}})
	want := "day          PV     UV\n2015-05-17    7  12345\n日           123      1\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestRejectsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.rejects")
	r := &rejectsFile{path: path}
	if err := r.add(files.Row{Line: 3, Reason: "too\tlate", Text: []byte("a\r\nb\tc")}); err != nil {
		t.Fatal(err)
	}
	if err := r.close(true); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "3\ttoo late\ta\\r\\nb\tc\n" {
		t.Errorf("file %q, %v", got, err)
	}
	if err := (&rejectsFile{path: path}).close(false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("an import that broke off has removed the rejects of the one before: %v", err)
	}
	if err := (&rejectsFile{path: path}).close(true); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the old rejects are still there after an import without any: %v", err)
	}
}

func TestUsageFaultsExitWithOne(t *testing.T) {
	f := func(says string, args ...string) {
		t.Helper()
		var errs strings.Builder
		if code := run(args, io.Discard, &errs); code != 1 || !strings.Contains(errs.String(), says) {
			t.Errorf("%v: exit %d, %q; want 1 with %q", args, code, errs.String(), says)
		}
	}
	dir := t.TempDir()
	f("unknown command", "srve")
	f("unknown flag", "serve", "--lisen", "x")
	f("shards: 0: want 1 to 256", "serve", "--data", dir, "--shards", "0")
	f("no key", "counts", "--data", dir)
	t.Setenv("ROLLCALL_KEY", "k")
	f("no rollcall answers at http://127.0.0.1:1:", "counts", "--data", dir, "--url", "http://127.0.0.1:1")
	f("Start one with \"rollcall serve\"", "counts", "--data", dir, "--url", "http://127.0.0.1:1")
	f("want http://HOST:PORT", "counts", "--data", dir, "--url", "localhost:8080")
}
