package journal

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Trim removes what nobody needs: records up to passed (all projections have passed it) that are older than MaxAge. When the
// quota is nearly used (90 %) or the disk nearly at MinFree (1.5 times), also younger ones, oldest first, as many as bring the
// quota to 80 % and the disk to twice MinFree; but never one younger than Slack and never one above passed.
func (j *Journal) Trim(ctx context.Context, passed uint64) error {
	st, err := j.state(ctx)
	if err != nil {
		return err
	}
	passed = min(passed, st.LastSeq)
	if st.Msgs == 0 || passed < st.FirstSeq {
		return nil
	}
	now := j.opt.Clock.Now()
	to, err := j.olderThan(ctx, st, now.Add(-j.opt.MaxAge))
	if err != nil {
		return err
	}
	if want := j.pressed(st); want > to {
		spare, err := j.olderThan(ctx, st, now.Add(-j.opt.Slack))
		if err != nil {
			return err
		}
		to = max(to, min(want, spare))
	}
	if to = min(to, passed); to < st.FirstSeq {
		return nil
	}
	if j.guard != nil {
		if err := j.guard.trim(to + 1); err != nil {
			return fmt.Errorf("journal: trim: %w", err)
		}
	}
	if err := j.stream.Purge(ctx, jetstream.WithPurgeSequence(to+1)); err != nil {
		return fmt.Errorf("journal: trim: %w", err)
	}
	j.full.Store(0)
	j.log.Info("journal trimmed", "from", st.FirstSeq, "to", to)
	return nil
}

// pressed returns the sequence up to which records should go to relieve quota and disk, 0 if there is no pressure. Records
// are taken as equally large; the next Trim corrects it.
func (j *Journal) pressed(st jetstream.StreamState) uint64 {
	var drop float64
	if quota, have := float64(j.opt.MaxBytes), float64(st.Bytes); quota > 0 && (have > 0.9*quota || j.isFull()) {
		drop = have - 0.8*quota
	}
	if j.node != nil && j.opt.MinFree > 0 {
		if free, err := freeDisk(j.opt.Dir); err == nil && free < j.opt.MinFree+j.opt.MinFree/2 {
			drop = max(drop, float64(2*j.opt.MinFree-free))
		}
	}
	if drop <= 0 {
		return 0
	}
	each := max(float64(st.Bytes)/float64(st.Msgs), 1)
	return min(st.FirstSeq+uint64(drop/each), st.LastSeq)
}

// olderThan returns the sequence of the last record before t, or one below the first. The server looks it up: a consumer that
// starts at t tells where it would begin.
func (j *Journal) olderThan(ctx context.Context, st jetstream.StreamState, t time.Time) (uint64, error) {
	if !st.FirstTime.Before(t) {
		return st.FirstSeq - 1, nil
	}
	if st.LastTime.Before(t) {
		return st.LastSeq, nil
	}
	c, err := j.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy:     jetstream.DeliverByStartTimePolicy,
		OptStartTime:      &t,
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: 10 * time.Second,
	})
	if err != nil {
		return 0, fmt.Errorf("journal: looking up a time: %w", err)
	}
	info := c.CachedInfo()
	if err := j.stream.DeleteConsumer(ctx, info.Name); err != nil {
		return 0, fmt.Errorf("journal: looking up a time: %w", err)
	}
	return info.Delivered.Stream, nil
}
