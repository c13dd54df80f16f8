package journal

import "golang.org/x/sys/unix"

// freeDisk returns the bytes that this process may still write on the disk of a path.
func freeDisk(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}
