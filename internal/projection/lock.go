package projection

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// backoff is the pause after a fault: 50 ms, doubling up to 5 s.
type backoff struct{ d time.Duration }

func newBackoff() *backoff { return &backoff{50 * time.Millisecond} }

func (b *backoff) next() time.Duration {
	d := b.d
	b.d = min(2*b.d, 5*time.Second)
	return d
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

var errLockLost = errors.New("another projector has taken the lock")

// lock waits for the projector's lock and keeps it. The context it returns ends when the lock is lost.
func (p *Projector) lock(ctx context.Context, token string) (release func(), held context.Context, err error) {
	for {
		if p.o.Exclusive {
			if err := p.o.Redis.Set(ctx, LockKey, token, LockTTL).Err(); err != nil {
				return nil, nil, fmt.Errorf("projector lock: %w", err)
			}
			break
		}
		ok, err := p.o.Redis.SetNX(ctx, LockKey, token, LockTTL).Result()
		if err != nil {
			return nil, nil, fmt.Errorf("projector lock: %w", err)
		}
		if ok {
			break
		}
		p.say(Standby, "")
		sleep(ctx, LockTTL/6)
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
	}
	held, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			sleep(held, LockTTL/3)
			if held.Err() != nil {
				return
			}
			kept, err := renewScript.Run(held, p.o.Redis, []string{LockKey}, token, LockTTL.Milliseconds()).Bool()
			if err == nil && !kept {
				cancel(errLockLost)
				return
			}
		}
	}()
	return func() {
		cancel(nil)
		<-done
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer stop()
		// If Redis does not answer, the lock runs out by itself.
		_ = renewScript.Run(ctx, p.o.Redis, []string{LockKey}, token, 0).Err()
	}, held, nil
}
