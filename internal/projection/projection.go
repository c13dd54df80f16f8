// Package projection carries the journal into Redis: one ordered read, duplicates out, each batch handed to every projection,
// and for each shard state and offset committed in one script.
package projection

import (
	"context"

	"github.com/rollcall/rollcall/internal/event"
)

// Record is one journal record with its duplicates removed. One that stands in the journal a second time has no events and no chunks.
type Record struct {
	Seq      uint64
	Received int64 // unix milliseconds
	Events   []event.Event
	Chunks   []Chunk // what it was made of; may have no events
}

// Chunk is what one request brought. Its string and bytes alias the record.
type Chunk struct {
	Project    string
	Received   int64 // unix milliseconds, when ingest took the request
	Bot        bool
	Events     int // before the duplicates were removed
	Duplicates int // of Events
	Rejected   event.Rejections
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

// Joiner is a Projection that may join late. Where Redis has no place of it yet, it begins with the first record that the journal still
// has. Every other projection begins with record 1 or not at all: its numbers would be wrong without what came before.
type Joiner interface{ JoinsLate() }

func joinsLate(p Projection) bool {
	_, ok := p.(Joiner)
	return ok
}
