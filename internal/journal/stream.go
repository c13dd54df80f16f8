package journal

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

const metaIdentity = "rollcall.identity"

// config is the stream as we make it: nothing in it ever removes a record but Trim.
func (j *Journal) config(identity string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              j.opt.Stream,
		Description:       "rollcall's journal",
		Subjects:          []string{j.subject},
		Retention:         jetstream.LimitsPolicy,
		Storage:           jetstream.FileStorage,
		Discard:           jetstream.DiscardNew,
		MaxBytes:          j.opt.MaxBytes,
		MaxMsgs:           -1,
		MaxMsgsPerSubject: -1,
		MaxMsgSize:        -1,
		MaxConsumers:      -1,
		Replicas:          j.replicas(),
		DenyDelete:        true,
		Metadata:          map[string]string{metaIdentity: identity},
	}
}

// verify names every setting of an existing stream that could lose a record or split the order.
func (j *Journal) verify(c jetstream.StreamConfig) error {
	var bad []string
	check := func(ok bool, want string) {
		if !ok {
			bad = append(bad, want)
		}
	}
	check(c.Retention == jetstream.LimitsPolicy, "retention limits")
	check(c.Storage == jetstream.FileStorage, "storage file")
	check(c.Discard == jetstream.DiscardNew, "discard new")
	check(c.MaxAge == 0, "no max_age")
	check(c.MaxMsgs <= 0, "no max_msgs")
	check(c.MaxMsgsPerSubject <= 0, "no max_msgs_per_subject")
	check(c.MaxMsgSize <= 0 || c.MaxMsgSize >= minPayload, fmt.Sprintf("max_msg_size of at least %d", minPayload))
	check(!c.NoAck, "acknowledgements")
	check(!c.Sealed, "not sealed")
	check(!c.DenyPurge, "purge allowed")
	check(!c.AllowRollup, "no rollup headers")
	check(c.PersistMode == jetstream.DefaultPersistMode, "the default persist_mode")
	check(c.Mirror == nil && len(c.Sources) == 0, "neither mirror nor sources")
	check(len(c.Subjects) == 1 && c.Subjects[0] == j.subject, "the one subject "+j.subject)
	check(len(c.Metadata[metaIdentity]) == identityLn, "metadata "+metaIdentity)
	if bad != nil {
		return fmt.Errorf("%w: stream %s must have: %s; correct it with the nats tool, or name another stream", ErrBadStream, j.opt.Stream, strings.Join(bad, ", "))
	}
	return nil
}

// openStream finds or makes the stream and holds it against the guard.
func (j *Journal) openStream(ctx context.Context) (err error) {
	j.stream, err = j.js.Stream(ctx, j.opt.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if err := j.mayCreate(); err != nil {
			return err
		}
		var id [identityLn / 2]byte
		if _, err := rand.Read(id[:]); err != nil {
			return err
		}
		j.stream, err = j.js.CreateStream(ctx, j.config(hex.EncodeToString(id[:])))
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another process was faster
			j.stream, err = j.js.Stream(ctx, j.opt.Stream)
		}
	}
	if err != nil {
		return fmt.Errorf("journal: opening the stream %s: %w", j.opt.Stream, err)
	}
	info := j.stream.CachedInfo()
	if err := j.verify(info.Config); err != nil {
		return err
	}
	j.identity = info.Config.Metadata[metaIdentity]
	if err := j.setQuota(ctx, info.Config); err != nil {
		return err
	}
	if j.node == nil {
		return nil
	}
	return j.checkStore(ctx)
}

// mayCreate refuses to make a new, empty stream where the guard knows of an old one.
func (j *Journal) mayCreate() error {
	if j.guard == nil || j.guard.id == "" {
		return nil
	}
	if acked, _ := j.guard.get(); acked > 0 {
		return j.lost(0, acked)
	}
	return nil
}

// setQuota brings the embedded stream's quota to the configured one. On an external server the stream's own quota counts.
func (j *Journal) setQuota(ctx context.Context, c jetstream.StreamConfig) (err error) {
	if c.MaxBytes == j.opt.MaxBytes {
		return nil
	}
	if j.node == nil {
		j.log.Warn("the stream has another quota than the configuration; the stream's counts", "stream", c.MaxBytes, "configured", j.opt.MaxBytes)
		j.opt.MaxBytes = c.MaxBytes
		return nil
	}
	c.MaxBytes = j.opt.MaxBytes
	if j.stream, err = j.js.UpdateStream(ctx, c); err != nil {
		return fmt.Errorf("journal: setting the quota: %w", err)
	}
	return nil
}

// checkStore holds the embedded store against the guard: same journal, no lost tail, no lost head. Records missing in the
// middle are logged and counted; whoever reads across the hole gets ErrGap.
func (j *Journal) checkStore(ctx context.Context) error {
	st, err := j.streamState(ctx)
	if err != nil {
		return err
	}
	if j.guard.id == "" {
		return j.adopt(ctx, st)
	}
	acked, first := j.guard.get()
	if j.guard.id != j.identity {
		if acked > 0 || st.LastSeq > 0 {
			return fmt.Errorf("%w: guard %s, stream %s; the two were not made together, restore both from one backup or delete %s to accept the store as it is (projections must then be rebuilt)",
				ErrIdentity, j.guard.id, j.identity, j.guard.path)
		}
		return j.guard.create(j.identity, 0, 1)
	}
	if st.FirstSeq < first && st.LastSeq >= first-1 && st.Msgs > 0 { // a trim was interrupted
		if err := j.stream.Purge(ctx, jetstream.WithPurgeSequence(first)); err != nil {
			return fmt.Errorf("journal: finishing a trim: %w", err)
		}
		if st, err = j.streamState(ctx); err != nil {
			return err
		}
	}
	if st.LastSeq < acked {
		return j.lost(st.LastSeq, acked)
	}
	if st.FirstSeq > first {
		return fmt.Errorf("%w: the first kept record must be %d, but the store begins at %d%s", ErrLostRecords, first, st.FirstSeq, j.remedy())
	}
	if kept := st.LastSeq + 1 - st.FirstSeq; st.Msgs < kept {
		j.missing = kept - st.Msgs
		j.log.Error("the journal has holes: readers will stop there", "missing", j.missing, "first", st.FirstSeq, "last", st.LastSeq)
	}
	// Records that were stored but not acknowledged before a kill are part of the journal from now on.
	if st.LastSeq > acked {
		_, err = j.guard.ack(st.LastSeq)
	}
	return err
}

// adopt makes the guard of a store that has none. If the store holds records, the operator has removed the guard to accept a
// loss: sequences may then be given a second time, so the journal becomes another one, and projections notice.
func (j *Journal) adopt(ctx context.Context, st jetstream.StreamState) error {
	if st.LastSeq > 0 {
		var id [identityLn / 2]byte
		if _, err := rand.Read(id[:]); err != nil {
			return err
		}
		c := j.stream.CachedInfo().Config
		was := j.identity
		j.identity = hex.EncodeToString(id[:])
		c.Metadata[metaIdentity] = j.identity
		s, err := j.js.UpdateStream(ctx, c)
		if err != nil {
			return fmt.Errorf("journal: giving the store a new identity: %w", err)
		}
		j.stream = s
		j.log.Warn("the journal had no guard file: its records are taken as they are under a new identity, projections must be rebuilt", "was", was, "is", j.identity, "first", st.FirstSeq, "last", st.LastSeq)
	}
	return j.guard.create(j.identity, st.LastSeq, st.FirstSeq)
}

// streamState asks the server, without the check of Journal.state.
func (j *Journal) streamState(ctx context.Context) (jetstream.StreamState, error) {
	info, err := j.stream.Info(ctx)
	if err != nil {
		return jetstream.StreamState{}, fmt.Errorf("journal: asking for the stream's state: %w", err)
	}
	st := info.State
	if st.Msgs == 0 {
		st.FirstSeq = st.LastSeq + 1
	}
	return st, nil
}

func (j *Journal) lost(have, want uint64) error {
	return fmt.Errorf("%w: records up to %d were acknowledged, but the store ends at %d%s", ErrLostRecords, want, have, j.remedy())
}

func (j *Journal) remedy() string {
	return fmt.Sprintf("; restore the folder %s from a backup, or delete %s to go on without them (the journal then gets a new identity and projections must be rebuilt)", j.opt.Dir, j.guard.path)
}
