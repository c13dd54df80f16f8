package project

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/clock"
)

// Store keeps projects and keys beside the journal, as entries of a JetStream key-value store, and brings every change, its own and
// other nodes', into a Directory.
//
//	project.<id>   Spec and created
//	key.<id>       see keyEntry
//	used.<id>      unix seconds at which the key was last used
type Store struct {
	kv    jetstream.KeyValue
	dir   *Directory
	clock clock.Clock
	log   *slog.Logger

	mu    sync.Mutex
	seen  uint64        // revision up to which the directory has followed
	moved chan struct{} // closed when seen grows

	stop context.CancelFunc
	done chan struct{}
}

const (
	projectPrefix = "project."
	keyPrefix     = "key."
	usedPrefix    = "used."
)

// MaxStored bounds what the API can make: projects, and keys in all.
const (
	maxProjects = 1000
	maxKeys     = 10_000
)

type projectEntry struct {
	Spec
	Created time.Time `json:"created"`
}

type keyEntry struct {
	Name    string    `json:"name,omitempty"`
	Project string    `json:"project,omitempty"`
	Scope   Scope     `json:"scope"`
	SHA256  string    `json:"sha256"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"`
	Revoked time.Time `json:"revoked,omitzero"`
}

// OpenStore reads what is stored into dir and follows it until Close.
func OpenStore(ctx context.Context, kv jetstream.KeyValue, dir *Directory, c clock.Clock, log *slog.Logger) (*Store, error) {
	life, stop := context.WithCancel(context.Background())
	s := &Store{kv: kv, dir: dir, clock: c, log: log, moved: make(chan struct{}), stop: stop, done: make(chan struct{})}
	w, err := s.watch(life)
	if err != nil {
		stop()
		return nil, fmt.Errorf("reading projects and keys: %w", err)
	}
	fail := func(err error) (*Store, error) {
		stop()
		_ = w.Stop()
		return nil, fmt.Errorf("reading projects and keys: %w", err)
	}
	var last uint64
	for initial := true; initial; {
		select {
		case e, ok := <-w.Updates():
			switch {
			case !ok:
				return fail(errors.New("the watch ended"))
			case e == nil:
				initial = false
			default:
				s.apply(e)
				last = e.Revision()
			}
		case <-ctx.Done():
			return fail(ctx.Err())
		}
	}
	dir.rebuild()
	s.saw(last)
	go s.follow(life, w)
	return s, nil
}

// watch tells everything there is, and each change; what is not ours is left out by take.
func (s *Store) watch(ctx context.Context) (jetstream.KeyWatcher, error) { return s.kv.WatchAll(ctx) }

// behind tells whether there are changes that the watch has not told. After its server was away a watch needs up to half a minute to
// notice, which is long for a key that was revoked.
func (s *Store) behind(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	status, err := s.kv.Status(ctx)
	if err != nil {
		return false
	}
	bucket, ok := status.(*jetstream.KeyValueBucketStatus)
	s.mu.Lock()
	defer s.mu.Unlock()
	return ok && bucket.StreamInfo().State.LastSeq > s.seen
}

// Fetch finds a stored project in the store itself: one that another node made may be there before this node's directory knows of it.
// nil if there is none.
func (s *Store) Fetch(ctx context.Context, id string) (*Project, error) {
	var e projectEntry
	if _, found, err := s.get(ctx, projectPrefix+id, &e); err != nil || !found {
		return nil, err
	}
	return New(e.Spec, Stored, e.Created)
}

// follow applies changes as they come, and writes down when keys were used. A watch that ends is begun anew.
func (s *Store) follow(ctx context.Context, w jetstream.KeyWatcher) {
	defer close(s.done)
	used, look := time.NewTicker(usedEvery), time.NewTicker(lookEvery)
	defer used.Stop()
	defer look.Stop()
	written := map[string]int64{}
	late := false
	for {
		select {
		case e, ok := <-w.Updates():
			switch {
			case !ok:
				if w = s.again(ctx, w); w == nil {
					return
				}
			case e != nil:
				s.apply(e)
				s.dir.rebuild()
				s.saw(e.Revision())
			}
		case <-used.C:
			s.writeUsed(ctx, written)
		case <-look.C:
			was := late
			if late = s.behind(ctx); late && was { // what was on its way a moment ago has come by now
				if w = s.again(ctx, w); w == nil {
					return
				}
			}
		case <-ctx.Done():
			_ = w.Stop()
			return
		}
	}
}

// again begins a new watch, which tells everything from the start; nil when ctx ends.
func (s *Store) again(ctx context.Context, w jetstream.KeyWatcher) jetstream.KeyWatcher {
	_ = w.Stop()
	for wait := 100 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, 5*time.Second) {
		next, err := s.watch(ctx)
		if err == nil {
			return next
		}
		s.log.Warn("projects and keys can't be followed", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	return nil
}

// lookEvery is how often the watch is held against the store.
const lookEvery = time.Second

// usedEvery is how exactly the last use of a key is known to other nodes and after a kill.
const usedEvery = time.Minute

// writeUsed stores when keys were used since the last time. Losing it costs nothing but that.
func (s *Store) writeUsed(ctx context.Context, written map[string]int64) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for id, at := range s.dir.lastUsed() {
		if written[id] >= at {
			continue
		}
		if _, err := s.kv.Put(ctx, usedPrefix+id, strconv.AppendInt(nil, at, 10)); err != nil {
			s.log.Debug("noting the use of a key", "err", err)
			return
		}
		written[id] = at
	}
}

// Close stops following, after a last note of when keys were used.
func (s *Store) Close(ctx context.Context) {
	s.stop()
	<-s.done
	s.writeUsed(ctx, map[string]int64{})
}

// apply brings one entry into the directory. What can't be read is left as it was, and said.
func (s *Store) apply(e jetstream.KeyValueEntry) {
	if err := s.dir.take(e.Key(), e.Value(), e.Operation() != jetstream.KeyValuePut); err != nil {
		s.log.Error("a stored definition can't be read", "key", e.Key(), "revision", e.Revision(), "err", err)
	}
}

// saw notes that lookups know of a revision.
func (s *Store) saw(revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision > s.seen {
		s.seen = revision
		close(s.moved)
		s.moved = make(chan struct{})
	}
}

// await waits until the directory knows of a change that this node made, so that whoever made it can use it.
func (s *Store) await(ctx context.Context, revision uint64) {
	for {
		s.mu.Lock()
		seen, moved := s.seen, s.moved
		s.mu.Unlock()
		if seen >= revision {
			return
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return
		case <-time.After(2 * time.Second):
			return // it is stored; it will be seen
		}
	}
}

// take brings an entry into what the next snapshot is made from.
func (d *Directory) take(key string, value []byte, deleted bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if id, ok := strings.CutPrefix(key, projectPrefix); ok {
		if deleted {
			delete(d.stored.projects, id)
			return nil
		}
		var e projectEntry
		if err := json.Unmarshal(value, &e); err != nil {
			return err
		}
		p, err := New(e.Spec, Stored, e.Created)
		if err == nil {
			d.stored.projects[id] = p
		}
		return err
	}
	if id, ok := strings.CutPrefix(key, keyPrefix); ok {
		if deleted {
			delete(d.stored.keys, id)
			return nil
		}
		k, err := readKey(id, value)
		if err == nil {
			d.stored.keys[id] = k
		}
		return err
	}
	if id, ok := strings.CutPrefix(key, usedPrefix); ok && !deleted {
		at, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil {
			return err
		}
		if u := d.usage(id); at > u.Load() {
			u.Store(at)
		}
	}
	return nil // of a newer version
}

func (d *Directory) rebuild() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.build()
}

func readKey(id string, value []byte) (*Key, error) {
	var e keyEntry
	if err := json.Unmarshal(value, &e); err != nil {
		return nil, err
	}
	k := &Key{ID: id, Name: e.Name, Project: e.Project, Scope: e.Scope, Source: Stored, Created: e.Created, Expires: e.Expires, Revoked: e.Revoked}
	if n, err := hex.Decode(k.Sum[:], []byte(e.SHA256)); err != nil || n != sha256.Size {
		return nil, errors.New("sha256 is not 64 hex digits")
	}
	return k, nil
}

func (k *Key) entry() keyEntry {
	return keyEntry{Name: k.Name, Project: k.Project, Scope: k.Scope, SHA256: hex.EncodeToString(k.Sum[:]), Created: k.Created, Expires: k.Expires, Revoked: k.Revoked}
}

// errStore is what a client hears when the store does not answer.
var errStore = apperr.New(apperr.Unavailable, "definitions_unavailable", "Projects and keys can't be changed now: the journal's key-value store does not answer.").After(time.Second)

// put stores an entry: a new one (revision 0), or the next version of the one with that revision. errRaced: another was faster.
func (s *Store) put(ctx context.Context, key string, entry any, revision uint64) error {
	value, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	var next uint64
	if revision == 0 {
		next, err = s.kv.Create(ctx, key, value)
	} else {
		next, err = s.kv.Update(ctx, key, value, revision)
	}
	if errors.Is(err, jetstream.ErrKeyExists) {
		return errRaced
	}
	if err != nil {
		return errStore.With(err)
	}
	s.await(ctx, next)
	return nil
}

var errRaced = errors.New("project: changed meanwhile")

// get reads an entry and its revision; found is false if there is none.
func (s *Store) get(ctx context.Context, key string, entry any) (revision uint64, found bool, err error) {
	e, err := s.kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, errStore.With(err)
	}
	return e.Revision(), true, json.Unmarshal(e.Value(), entry)
}
