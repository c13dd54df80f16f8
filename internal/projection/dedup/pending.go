package dedup

// position is where an id was first seen: a place in the journal, so that reading the same record again does not make it its
// own duplicate.
type position struct {
	seq      uint64
	index    uint32 // of the event in its record
	received int64  // unix milliseconds
}

func (p position) before(q position) bool {
	return p.seq < q.seq || p.seq == q.seq && p.index < q.index
}

// pending holds what is not in the store yet: a log of entries and an open-addressed index into it.
type pending struct {
	entries []entry
	slots   []uint32 // 1 + index into entries, 0 = free; a power of two, at most half full
}

type entry struct {
	key key
	pos position
}

func (p *pending) slot(k key) uint64 { return k.lo & uint64(len(p.slots)-1) }

// get returns the latest entry of k.
func (p *pending) get(k key) (position, bool) {
	if len(p.entries) == 0 {
		return position{}, false
	}
	found, ok := position{}, false
	for i := p.slot(k); p.slots[i] != 0; i = (i + 1) & uint64(len(p.slots)-1) {
		if e := &p.entries[p.slots[i]-1]; e.key == k {
			found, ok = e.pos, true
		}
	}
	return found, ok
}

func (p *pending) add(k key, pos position) {
	if 2*(len(p.entries)+1) > len(p.slots) {
		p.grow()
	}
	p.entries = append(p.entries, entry{k, pos})
	p.index(k, uint32(len(p.entries)))
}

func (p *pending) index(k key, n uint32) {
	i := p.slot(k)
	for p.slots[i] != 0 {
		i = (i + 1) & uint64(len(p.slots)-1)
	}
	p.slots[i] = n
}

func (p *pending) grow() {
	p.slots = make([]uint32, max(1024, 2*len(p.slots)))
	for i := range p.entries {
		p.index(p.entries[i].key, uint32(i+1))
	}
}

func (p *pending) reset() {
	p.entries = p.entries[:0]
	clear(p.slots)
}
