package dedup

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// minFree is how many bytes of disk must be free before anything is written: Pebble ends the process when its manifest meets a
// full disk.
const minFree = 64 << 20

// ErrNoRoom means that the disk is nearly full. Nothing was lost; it works again when there is room.
var ErrNoRoom = errors.New("dedup: too little disk space is free")

// room is a variable for tests only.
var room = func(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("dedup: free space of %s: %w", dir, err)
	}
	if free := st.Bavail * uint64(st.Bsize); free < minFree {
		return fmt.Errorf("%w: %d bytes in %s, %d needed", ErrNoRoom, free, dir, minFree)
	}
	return nil
}
