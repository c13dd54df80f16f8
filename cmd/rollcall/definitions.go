package main

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// definitions is the key-value store beside the journal as the rooms see it that keep something there.
type definitions struct{ kv jetstream.KeyValue }

func (s definitions) Get(ctx context.Context, key string) ([]byte, bool, error) {
	e, err := s.kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return e.Value(), true, nil
}

func (s definitions) Create(ctx context.Context, key string, value []byte) (bool, error) {
	_, err := s.kv.Create(ctx, key, value)
	if errors.Is(err, jetstream.ErrKeyExists) {
		return false, nil
	}
	return err == nil, err
}

// Delete purges: a deleted salt must not lie on the disk.
func (s definitions) Delete(ctx context.Context, key string) error { return s.kv.Purge(ctx, key) }

func (s definitions) Put(ctx context.Context, key string, value []byte) error {
	_, err := s.kv.Put(ctx, key, value)
	return err
}

// Keys lists those that begin with a prefix, which ends with a dot.
func (s definitions) Keys(ctx context.Context, prefix string) ([]string, error) {
	l, err := s.kv.ListKeysFiltered(ctx, prefix+">")
	if err != nil {
		return nil, err
	}
	var keys []string
	for key := range l.Keys() {
		keys = append(keys, key)
	}
	return keys, nil
}

// sweepSalts deletes the salts of days that are over also where nobody comes any more.
func (n *node) sweepSalts() {
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		if err := n.salts.Sweep(n.life); err != nil && n.life.Err() == nil {
			n.log.Warn("old salts of anonymous visitors could not be deleted; trying again in an hour", "err", err)
		}
		select {
		case <-tick.C:
		case <-n.life.Done():
			return
		}
	}
}
