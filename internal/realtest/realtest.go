// Package realtest gives tests private, real servers, and the means to hurt them: kill, freeze, cut what was not yet on disk,
// fail over, drop a reply, hold a request back.
package realtest

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Shared returns the folder of real data and right values: the one named by ROLLCALL_SHARED, or `shared` beside the repository.
// Where there is none the test is skipped; with CI=true that is a failure.
func Shared(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("ROLLCALL_SHARED")
	if dir == "" {
		dir = filepath.Join(filepath.Dir(root(t)), "shared")
	}
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return dir
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is not a folder: this test needs the shared data (set ROLLCALL_SHARED)", dir)
	}
	t.Skipf("%s is not a folder: no shared data here (set ROLLCALL_SHARED)", dir)
	return ""
}

// root is the folder with go.mod above the test's own.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the working folder")
		}
		dir = parent
	}
}

// Eventually polls until cond returns nil; when timeout has passed it fails the test with cond's last error.
func Eventually(t testing.TB, timeout time.Duration, cond func() error) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		err := cond()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %v", timeout, err)
		}
		time.Sleep(wait)
	}
}
