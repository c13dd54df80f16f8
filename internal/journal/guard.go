package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"
)

// guard is a small file beside the embedded store that remembers what the store must hold: the highest acknowledged sequence,
// the first kept sequence, and whose they are. It is written (not synced: the page cache outlives a killed process) before an
// append is answered, so a store that lost its tail is found out at the next Open. After a power failure the file may be older
// than the store, which weakens the check but raises no false alarm: whatever moves `first` is synced before the store moves.
//
// The file has two slots in different sectors, written in turn; the valid one with the higher counter counts.
//
//	0 magic "RCGD" · 4 version 1 · 8 identity (32 bytes of text) · 40 counter · 48 acked · 56 first · 64 CRC-32C of 0–64
type guard struct {
	path string

	mu    sync.Mutex
	f     *os.File
	id    string
	count uint64
	acked uint64
	first uint64
	err   error // of the last write: the guard is not kept any more
}

const (
	guardName  = "journal.guard"
	guardSlot  = 512
	guardLen   = 68
	identityLn = 32
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errGuardDamaged is reported when neither slot is readable.
var errGuardDamaged = errors.New("journal: the guard file is damaged")

// openGuard opens the folder's guard. A missing file is no error: id is then "".
func openGuard(dir string) (*guard, error) {
	g := &guard{path: filepath.Join(dir, guardName)}
	f, err := os.OpenFile(g.path, os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return g, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journal: guard file: %w", err)
	}
	var buf [2 * guardSlot]byte
	n, _ := f.ReadAt(buf[:], 0)
	for slot := 0; slot < 2; slot++ {
		b := buf[slot*guardSlot:][:guardLen]
		if slot*guardSlot+guardLen > n || string(b[:4]) != "RCGD" || b[4] != 1 ||
			binary.LittleEndian.Uint32(b[64:]) != crc32.Checksum(b[:64], castagnoli) {
			continue
		}
		if count := binary.LittleEndian.Uint64(b[40:]); g.id == "" || count > g.count {
			g.id, g.count = string(b[8:8+identityLn]), count
			g.acked, g.first = binary.LittleEndian.Uint64(b[48:]), binary.LittleEndian.Uint64(b[56:])
		}
	}
	if g.id == "" {
		f.Close()
		return nil, fmt.Errorf("%w: %s; if the store beside it is known to be whole, delete it: the journal then gets a new identity and projections must be rebuilt", errGuardDamaged, g.path)
	}
	g.f = f
	return g, nil
}

// create makes the file for a store that has none, and syncs it.
func (g *guard) create(id string, acked, first uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	f, err := os.OpenFile(g.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("journal: guard file: %w", err)
	}
	g.f, g.id, g.acked, g.first = f, id, acked, first
	if err := g.write(); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("journal: guard file: %w", err)
	}
	d, err := os.Open(filepath.Dir(g.path))
	if err != nil {
		return fmt.Errorf("journal: guard file: %w", err)
	}
	defer d.Close()
	return d.Sync()
}

// write puts the state into the older slot. The lock is held.
func (g *guard) write() error {
	g.count++
	var b [guardLen]byte
	copy(b[:], "RCGD\x01")
	copy(b[8:8+identityLn], g.id)
	binary.LittleEndian.PutUint64(b[40:], g.count)
	binary.LittleEndian.PutUint64(b[48:], g.acked)
	binary.LittleEndian.PutUint64(b[56:], g.first)
	binary.LittleEndian.PutUint32(b[64:], crc32.Checksum(b[:64], castagnoli))
	if _, err := g.f.WriteAt(b[:], int64(g.count%2)*guardSlot); err != nil {
		g.err = fmt.Errorf("journal: guard file: %w", err)
		return g.err
	}
	return nil
}

// ack raises the acknowledged sequence. It reports false when seq was acknowledged before: the store gave one sequence twice.
func (g *guard) ack(seq uint64) (fresh bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if seq <= g.acked {
		return false, nil
	}
	g.acked = seq
	return true, g.write()
}

// trim raises the first kept sequence and syncs, before the store removes anything.
func (g *guard) trim(first uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if first <= g.first {
		return nil
	}
	g.first = first
	// Both slots, or the loss of the newer one would look like a loss of the store's head.
	if err := errors.Join(g.write(), g.write()); err != nil {
		return err
	}
	return g.f.Sync()
}

func (g *guard) get() (acked, first uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.acked, g.first
}

func (g *guard) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.f == nil {
		return nil
	}
	err := errors.Join(g.f.Sync(), g.f.Close())
	g.f = nil
	return err
}
