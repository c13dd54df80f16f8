package redisx

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// socketPath returns where the child of this absolute folder listens, in a folder that only this user may enter. It is the same
// at every start, so that a child left behind by a killed parent can be found.
func socketPath(dir string) (string, error) {
	run := filepath.Join(dir, "run")
	if path := filepath.Join(run, "redis.sock"); len(path) < maxSocketPath() {
		return path, private(run)
	}
	// A socket's address holds no longer path.
	sum := sha256.Sum256([]byte(dir))
	run = filepath.Join(os.TempDir(), fmt.Sprintf("rollcall-%d-%s", os.Getuid(), hex.EncodeToString(sum[:6])))
	path := filepath.Join(run, "redis.sock")
	if len(path) >= maxSocketPath() {
		return "", fmt.Errorf("the managed Redis needs a path shorter than %d bytes for its socket: both %s and %s are too long; "+
			"choose a shorter data folder or TMPDIR", maxSocketPath(), dir, os.TempDir())
	}
	return path, private(run)
}

// maxSocketPath is the size of sockaddr_un.sun_path, with its final NUL.
func maxSocketPath() int {
	if runtime.GOOS == "linux" {
		return 108
	}
	return 104
}

// private makes a folder of mode 0700, or makes sure that it is one and ours: in a temp folder anybody may have put it there.
func private(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(stat.Uid) != os.Getuid() {
		return fmt.Errorf("%s is not a folder of this user: remove it", dir)
	}
	return os.Chmod(dir, 0o700)
}
