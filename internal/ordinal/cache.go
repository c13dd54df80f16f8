package ordinal

import "hash/maphash"

// cacheKey stands for a project's user: 128 bits of keyed hashes, whose keys are the process's own. Two users would share one by chance in
// 2^-128 of the pairs, and nobody can look for such a pair without the keys.
type cacheKey [2]uint64

// found is where a user stands.
type found struct {
	ordinal uint32
	shard   int32
}

// cache remembers users in two generations: when the young one is full it becomes the old one, and the old one goes. Who is looked up moves
// to the young one, so users that come often stay. Some 40 bytes a user, no pointers.
type cache struct {
	young, old map[cacheKey]found
	limit      int // of a generation
	seeds      [2]maphash.Seed
	losses     int // how often something has gone: what is not here may still exist
}

func newCache(users int) *cache {
	return &cache{young: map[cacheKey]found{}, limit: max(users/2, 1), seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
}

// key hashes a user; mix is that of the project.
func (c *cache) key(mix cacheKey, user string) cacheKey {
	return cacheKey{maphash.String(c.seeds[0], user) ^ mix[0], maphash.String(c.seeds[1], user) + mix[1]}
}

func (c *cache) get(k cacheKey) (found, bool) {
	f, ok := c.young[k]
	if ok || c.old == nil {
		return f, ok
	}
	if f, ok = c.old[k]; ok {
		c.put(k, f)
	}
	return f, ok
}

func (c *cache) put(k cacheKey, f found) {
	if len(c.young) >= c.limit {
		if len(c.old) > 0 {
			c.losses++
		}
		c.old, c.young = c.young, make(map[cacheKey]found, c.limit/4)
	}
	c.young[k] = f
}
