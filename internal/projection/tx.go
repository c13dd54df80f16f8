package projection

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Tx collects the writes of one projection for one batch.
type Tx struct {
	shards  []shardTx
	barrier func(context.Context) (redis.UniversalClient, error)
}

// shardTx is what one shard's commit will do.
type shardTx struct {
	applied uint64
	touched bool // the batch has writes for the shard, or the shard's offset is to be moved up
	cmds    [][]any
	words   int // size of all commands as script arguments
}

// Shards is the number of shards.
func (tx *Tx) Shards() int { return len(tx.shards) }

// Applied is the offset the shard holds before this batch: records up to and including it are in already.
func (tx *Tx) Applied(shard int) uint64 { return tx.shards[shard].applied }

// Do adds one write command to the shard's commit. args are the command's name, its key (which must carry the shard's tag)
// and its arguments: string, []byte, int or int64; at most 1,000 words a command, since a script unpacks them onto Lua's stack.
func (tx *Tx) Do(shard int, args ...any) {
	s := &tx.shards[shard]
	s.touched = true
	s.cmds = append(s.cmds, args)
	s.words += len(args) + 1
}

// Read waits until every earlier batch is committed and returns a client for loading caches.
func (tx *Tx) Read(ctx context.Context) (redis.UniversalClient, error) { return tx.barrier(ctx) }

// NewTx makes a Tx outside of a Projector, for tests and benchmarks of a projection: applied is the offset of each shard, read answers Read.
func NewTx(shards int, applied []uint64, read func(context.Context) (redis.UniversalClient, error)) *Tx {
	tx := &Tx{shards: make([]shardTx, shards), barrier: read}
	for shard := range applied {
		tx.shards[shard].applied = applied[shard]
	}
	return tx
}

// Commands are the writes collected for a shard, in order.
func (tx *Tx) Commands(shard int) [][]any { return tx.shards[shard].cmds }
