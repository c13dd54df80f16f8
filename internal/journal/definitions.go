package journal

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Definitions opens the key-value store beside the journal, for what must be known before an event can be understood: projects, keys,
// salts. It is made when it is missing, with the journal's replicas, on the same disk and with the same sync. Values are at most 64 KiB.
func (j *Journal) Definitions(ctx context.Context) (jetstream.KeyValue, error) {
	name := j.opt.Stream + "_definitions"
	kv, err := j.js.KeyValue(ctx, name)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return kv, wrapDefinitions(name, err)
	}
	kv, err = j.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket:       name,
		Description:  "rollcall's projects, keys and salts",
		MaxValueSize: 64 << 10,
		History:      1,
		Storage:      jetstream.FileStorage,
		Replicas:     j.replicas(),
	})
	if errors.Is(err, jetstream.ErrBucketExists) { // another node was faster
		kv, err = j.js.KeyValue(ctx, name)
	}
	return kv, wrapDefinitions(name, err)
}

func wrapDefinitions(name string, err error) error {
	if err != nil {
		return fmt.Errorf("journal: opening the key-value store %s: %w", name, err)
	}
	return nil
}

// replicas is how many copies a stream gets that we make.
func (j *Journal) replicas() int {
	switch {
	case j.opt.Replicas > 0:
		return j.opt.Replicas
	case j.nc.ConnectedClusterName() != "":
		return 3
	}
	return 1
}
