package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/apperr"
)

// small mounts a disk of its own. It needs root; in CI its absence is a failure.
func small(t *testing.T, bytes int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("mounting a tmpfs: %v", err)
		}
		t.Skipf("mounting a tmpfs needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmounting: %v", err)
		}
	})
	return dir
}

// ballast takes room on a disk until it is called.
func ballast(t *testing.T, dir string, bytes int) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	if err := os.WriteFile(path, make([]byte, bytes), 0o600); err != nil {
		t.Fatal(err)
	}
	return func() { remove(t, path) }
}

// The free space is watched: appends are refused before the disk is full, and taken again when there is room.
func TestDiskNearlyFull(t *testing.T) {
	dir := small(t, 24<<20)
	free := ballast(t, dir, 12<<20)
	j := opened(t, Options{Dir: dir, MinFree: 4 << 20})
	acked, err := fill(t, j, 100_000)
	wantCode(t, err, "journal_full")
	if s := j.Stats(); s.FreeDisk < 4<<20 || len(acked) < 20 {
		t.Fatalf("refused after %d records of 100 kB with %d bytes free", len(acked), s.FreeDisk)
	}
	free()
	appended(t, j, chunk(100_000, "again"))
	wantHeld(t, j, append(acked, "again"))
}

// The disk is full although nobody watched: what was acknowledged stays, appends fail, and go on when there is room, without
// a restart by hand.
func TestDiskFull(t *testing.T) {
	dir := small(t, 24<<20)
	free := ballast(t, dir, 16<<20)
	j := opened(t, Options{Dir: dir, MinFree: -1})
	acked, err := fill(t, j, 100_000)
	var e *apperr.Error
	if !errors.As(err, &e) || e.Kind != apperr.Unavailable {
		t.Fatalf("got %v, want Unavailable", err)
	}
	eventually(t, "appends are refused at once", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := j.Append(ctx, chunk(0, "no room"))
		return errors.As(err, &e) && e.Code == "journal_full"
	})
	free()
	eventually(t, "appends work again", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := j.Append(ctx, chunk(100_000, "again"))
		return err == nil
	})
	wantHeld(t, j, append(acked, "again"))
	closed(t, j)
	wantHeld(t, opened(t, Options{Dir: dir, MinFree: -1}), append(acked, "again"))
}
