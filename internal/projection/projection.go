// Package projection carries the journal into Redis: one ordered read, duplicates out, each batch handed to every projection,
// and for each shard state and offset committed in one script.
package projection

import (
	"context"

	"github.com/rollcall/rollcall/internal/event"
)

// Record is one journal record with its duplicates removed.
type Record struct {
	Seq      uint64
	Received int64 // unix milliseconds
	Events   []event.Event
}

// Batch is a run of consecutive journal records.
type Batch struct {
	Records []Record
	Events  int // over all records
}

// Projection turns events into writes. It is called from one goroutine at a time.
type Projection interface {
	// Name is the projection's name in keys and metrics.
	Name() string
	// Reset begins a new epoch: every cache of Redis's state is dropped.
	Reset()
	// Project folds a batch into tx. It must be deterministic: the same records give the same writes, whenever they are read.
	// Events of a record whose Seq is at or below tx.Applied(shard) are in that shard already and must be left out there.
	Project(ctx context.Context, b *Batch, tx *Tx) error
}
