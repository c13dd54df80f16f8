package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollcall/rollcall/ingest/files"
)

// An import never writes over, nor removes, a file that is not its own.
func TestRejectsHarmNoOtherFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	in, err := os.Open(write("in.csv", "user,n\nu1,5\n"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(in.Name(), link); err != nil {
		t.Fatal(err)
	}
	f := func(path, want string) {
		t.Helper()
		err := mayReplace(path, in)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", filepath.Base(path), err, want)
		}
	}
	f(in.Name(), "is the file to import")
	f(link, "is the file to import")
	f(write("notes.txt", "dear diary\n"), "holds no refused lines")
	f(write("empty", ""), "")
	f(filepath.Join(dir, "new"), "")

	mine := &rejectsFile{path: filepath.Join(dir, "mine")}
	if err := mine.add(files.Row{Line: 7, Reason: "too old", Text: []byte("a\tb")}); err != nil {
		t.Fatal(err)
	}
	if err := mine.close(true); err != nil {
		t.Fatal(err)
	}
	f(mine.path, "")
}
