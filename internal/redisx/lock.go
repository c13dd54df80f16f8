package redisx

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// lockFile takes an exclusive lock that lives as long as any process has the returned file open. While another holds it, waiting
// is called before each new try; its error ends the wait.
func lockFile(ctx context.Context, path string, waiting func() error) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if errors.Is(err, syscall.EWOULDBLOCK) {
			if err = waiting(); err == nil {
				err = pause(ctx, 10*time.Millisecond)
			}
		}
		if err != nil && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, err
		}
	}
}

// pause waits for d, or returns ctx's error.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
