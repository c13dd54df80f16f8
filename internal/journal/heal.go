package journal

import (
	"context"
	"errors"
	"time"
)

// heal restarts the embedded server after a write failed: JetStream then answers nothing more until it is started again. It waits
// until the disk has room, and checks that what was acknowledged is still there. While it works, Append refuses. The writer
// calls it, so the record in flight is sent again afterwards.
func (j *Journal) heal() error {
	j.sick.Store(true)
	defer j.sick.Store(false)
	j.log.Error("the journal cannot write: its server will be restarted when the disk has room", "folder", j.opt.Dir)
	for attempt := 0; ; attempt++ {
		t := time.NewTimer(backoff(attempt))
		select {
		case <-t.C:
		case <-j.life.Done():
			t.Stop()
			return ErrClosed
		}
		if free, err := freeDisk(j.opt.Dir); err != nil || free < max(j.opt.MinFree, minRoom) {
			continue
		}
		j.node.halt()
		select {
		case <-j.node.sick: // said by the server that is gone
		default:
		}
		if err := j.node.start(); err != nil {
			j.log.Error("the journal's server does not start", "err", err)
			continue
		}
		switch err := j.answers(); {
		case err == nil:
			j.log.Info("the journal's server runs again")
			return nil
		case errors.Is(err, ErrLostRecords), errors.Is(err, ErrClosed):
			return err
		default:
			j.log.Error("the journal's server does not answer", "err", err)
		}
	}
}

// answers waits, for at most ten seconds, until the connection has found the new server and the stream is there.
func (j *Journal) answers() (err error) {
	ctx, cancel := context.WithTimeout(j.life, 10*time.Second)
	defer cancel()
	for {
		if _, err = j.state(ctx); err == nil || errors.Is(err, ErrLostRecords) {
			return err
		}
		t := time.NewTimer(20 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			if j.life.Err() != nil {
				return ErrClosed
			}
			return err
		}
	}
}

// minRoom is the free space without which a restart is not tried: JetStream writes while it starts.
const minRoom = 1 << 20
