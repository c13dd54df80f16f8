package project

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/clock"
)

// Directory knows every project and every key at this moment. Looking up takes no lock; a change makes a new snapshot.
type Directory struct {
	clock clock.Clock
	now   atomic.Pointer[snapshot]

	mu     sync.Mutex // what snapshots are made from
	fixed  entries    // of the configuration
	stored entries
	used   map[string]*atomic.Int64 // by key id
}

type entries struct {
	projects map[string]*Project
	keys     map[string]*Key // by id
}

type snapshot struct {
	projects map[string]*Project
	only     *Project // when there is just one
	keys     map[[sha256.Size]byte]*Key
	list     []*Key // by project, then id
}

// NewDirectory makes an empty directory.
func NewDirectory(c clock.Clock) *Directory {
	d := &Directory{clock: c, used: map[string]*atomic.Int64{}}
	d.stored = entries{map[string]*Project{}, map[string]*Key{}}
	d.build()
	return d
}

// Configure replaces the projects and keys of the configuration.
func (d *Directory) Configure(projects []*Project, keys []*Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fixed = entries{map[string]*Project{}, map[string]*Key{}}
	for _, p := range projects {
		d.fixed.projects[p.ID] = p
	}
	for _, k := range keys {
		d.fixed.keys[k.ID] = k
	}
	d.build()
}

// build makes the snapshot. What is configured hides what is stored under the same name.
func (d *Directory) build() {
	s := &snapshot{projects: maps.Clone(d.stored.projects), keys: map[[sha256.Size]byte]*Key{}}
	maps.Copy(s.projects, d.fixed.projects)
	if len(s.projects) == 1 {
		for _, p := range s.projects {
			s.only = p
		}
	}
	for _, from := range []map[string]*Key{d.stored.keys, d.fixed.keys} {
		for _, k := range from {
			if k.used == nil { // set once, before anybody else sees the key
				k.used = d.usage(k.ID)
			}
			s.keys[k.Sum] = k
		}
	}
	s.list = slices.SortedFunc(maps.Values(s.keys), func(a, b *Key) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.ID, b.ID))
	})
	d.now.Store(s)
}

func (d *Directory) usage(id string) *atomic.Int64 {
	u := d.used[id]
	if u == nil {
		u = new(atomic.Int64)
		d.used[id] = u
	}
	return u
}

const maxSecret = 128 // bytes; ours are 44

// The refusals of a key.
var (
	errUnknown = apperr.New(apperr.Unauthorized, "key_unknown", "This key is not known here.")
	errRevoked = apperr.New(apperr.Unauthorized, "key_revoked", "This key has been revoked.")
	errExpired = apperr.New(apperr.Unauthorized, "key_expired", "This key has expired; make a new one with `rollcall keys create`.")
	errClosed  = apperr.New(apperr.Forbidden, "project_closed", "This project is closed.").On("project")
	errMissing = apperr.New(apperr.NotFound, "project_unknown", "There is no such project.").On("project")
)

// Find looks up a secret and notes that the key was used. Errors: Unauthorized.
func (d *Directory) Find(secret string) (*Key, error) {
	k := d.now.Load().find(secret)
	now := d.clock.Now()
	switch {
	case k == nil:
		return nil, errUnknown
	case !k.Revoked.IsZero():
		return nil, errRevoked
	case !k.Expires.IsZero() && !now.Before(k.Expires):
		return nil, errExpired
	}
	if s := now.Unix(); s > k.used.Load() {
		k.used.Store(s)
	}
	return k, nil
}

func (s *snapshot) find(secret string) *Key {
	if len(secret) > maxSecret {
		return nil
	}
	var buf [maxSecret]byte
	sum := sha256.Sum256(buf[:copy(buf[:], secret)])
	k, ok := s.keys[sum]
	// The map compares hashes, which tell nothing about the key; this makes sure of it whatever the map does.
	if !ok || subtle.ConstantTimeCompare(sum[:], k.Sum[:]) != 1 {
		return nil
	}
	return k
}

// ProjectOfKey is the project that a secret belongs to, whether or not it still works; nil for an unknown one and for one that opens
// every project.
func (d *Directory) ProjectOfKey(secret string) *Project {
	s := d.now.Load()
	if k := s.find(secret); k != nil {
		return s.projects[k.Project]
	}
	return nil
}

// Project finds a project that is open. Errors: NotFound, Forbidden.
func (d *Directory) Project(id string) (*Project, error) {
	p, ok := d.now.Load().projects[id]
	switch {
	case !ok:
		return nil, errMissing
	case p.Closed:
		return nil, errClosed
	}
	return p, nil
}

// Any finds a project, closed or not. Error: NotFound.
func (d *Directory) Any(id string) (*Project, error) {
	if p := d.Lookup(id); p != nil {
		return p, nil
	}
	return nil, errMissing
}

// Lookup finds a project, closed or not; nil if there is none.
func (d *Directory) Lookup(id string) *Project { return d.now.Load().projects[id] }

// Only is the project when there is just one, else nil.
func (d *Directory) Only() *Project { return d.now.Load().only }

// Projects lists every project by id.
func (d *Directory) Projects() []*Project {
	s := d.now.Load()
	return slices.SortedFunc(maps.Values(s.projects), func(a, b *Project) int { return cmp.Compare(a.ID, b.ID) })
}

// Keys lists the keys of a project by id; "" = those that open every project.
func (d *Directory) Keys(project string) (list []*Key) {
	for _, k := range d.now.Load().list {
		if k.Project == project {
			list = append(list, k)
		}
	}
	return list
}

// Key finds a key of a project by its id, nil if there is none.
func (d *Directory) Key(project, id string) *Key {
	for _, k := range d.Keys(project) {
		if k.ID == id {
			return k
		}
	}
	return nil
}

// lastUsed copies when each key was last used, unix seconds.
func (d *Directory) lastUsed() map[string]int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := make(map[string]int64, len(d.used))
	for id, u := range d.used {
		if s := u.Load(); s > 0 {
			m[id] = s
		}
	}
	return m
}
