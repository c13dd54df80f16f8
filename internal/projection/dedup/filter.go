package dedup

import "math/bits"

// A filter answers "surely new" or "maybe seen" for the 128-bit keys of one day. It is a blocked Bloom filter (Putze, Sanders,
// Singler 2007): one cache line a key, so one memory access. It grows in layers, each eight times the one before; at 16 bits a
// key about 1 in 500 new keys is taken for a maybe by a full layer and costs a look into the store.
type filter struct {
	layers []layer
}

type layer struct {
	blocks []line
	left   int // keys until the layer is full
}

type line [8]uint64

const (
	firstLayerKeys = 1 << 18
	layerGrowth    = 8
	bitsPerKey     = 16
	probes         = 6
)

func newLayer(keys int) layer {
	return layer{blocks: make([]line, (keys*bitsPerKey+511)/512), left: keys}
}

func (l *layer) at(k key) *line {
	i, _ := bits.Mul64(k.hi, uint64(len(l.blocks)))
	return &l.blocks[i]
}

func (b *line) has(h uint64) bool {
	for range probes {
		if b[h>>6&7]&(1<<(h&63)) == 0 {
			return false
		}
		h >>= 9
	}
	return true
}

func (b *line) set(h uint64) {
	for range probes {
		b[h>>6&7] |= 1 << (h & 63)
		h >>= 9
	}
}

func (f *filter) has(k key) bool {
	for i := len(f.layers) - 1; i >= 0; i-- {
		if f.layers[i].at(k).has(k.lo) {
			return true
		}
	}
	return false
}

// add sets k's bits. maxBytes bounds the filter: beyond it the last layer fills up further, which costs time, never
// correctness.
func (f *filter) add(k key, room int) (grown int) {
	n := len(f.layers)
	if n == 0 || f.layers[n-1].left <= 0 {
		keys := firstLayerKeys
		if n > 0 {
			keys = len(f.layers[n-1].blocks) * 512 / bitsPerKey * layerGrowth
		}
		if size := keys * bitsPerKey / 8; n == 0 || size <= room {
			f.layers = append(f.layers, newLayer(keys))
			grown = size
			n++
		}
	}
	l := &f.layers[n-1]
	l.at(k).set(k.lo)
	l.left--
	return grown
}

func (f *filter) bytes() int {
	n := 0
	for i := range f.layers {
		n += len(f.layers[i].blocks) * 64
	}
	return n
}
