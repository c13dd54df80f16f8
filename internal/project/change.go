package project

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/clock"
)

// The refusals of a change.
var (
	errExists     = apperr.New(apperr.Conflict, "project_exists", "There is a project of this id.").On("id")
	errReadOnly   = apperr.New(apperr.Conflict, "read_only", "This is defined in the configuration (or a key file): change it there.")
	errZone       = apperr.New(apperr.Conflict, "zone_fixed", "A project's zone can't change: its days have been counted in it. Make another project.").On("zone")
	errRename     = apperr.New(apperr.Invalid, "id_fixed", "A project's id can't change.").On("id")
	errNoKey      = apperr.New(apperr.NotFound, "key_not_found", "The project has no key of this id.").On("key")
	errKeyEnded   = apperr.New(apperr.Conflict, "key_ended", "This key has been revoked or has expired.").On("key")
	errRootScope  = apperr.New(apperr.Invalid, "bad_key", "A key without a project opens all of them, so its scope is admin.").On("scope")
	errBusyChange = apperr.New(apperr.Conflict, "changed_meanwhile", "Somebody else changed this at the same moment; look and try again.")
)

// faults turns what Check finds into one error that names the first field and tells all.
func faults(s *Spec) error {
	var first, all string
	n := 0
	s.Check(func(field, text string) {
		if n++; n == 1 {
			first, all = field, field+": "+text
		} else if n <= 10 {
			all += "; " + field + ": " + text
		}
	})
	if n == 0 {
		return nil
	}
	return apperr.New(apperr.Invalid, "bad_project", "%s", all).On(first)
}

// CreateProject makes a project. zone and late stand for what the spec leaves out. Errors: Invalid, Conflict, Unavailable.
func (s *Store) CreateProject(ctx context.Context, spec Spec, zone string, late clock.Duration) (*Project, error) {
	spec.Complete(zone, late)
	if err := faults(&spec); err != nil {
		return nil, err
	}
	if s.dir.Lookup(spec.ID) != nil {
		return nil, errExists
	}
	if len(s.dir.Projects()) >= maxProjects {
		return nil, apperr.New(apperr.Conflict, "too_many_projects", "There are as many projects as there may be.").Over(fmt.Sprintf("%d projects", maxProjects), "")
	}
	e := projectEntry{spec, s.clock.Now().UTC().Truncate(time.Second)}
	if err := s.put(ctx, projectPrefix+spec.ID, e, 0); errors.Is(err, errRaced) {
		return nil, errExists
	} else if err != nil {
		return nil, err
	}
	return New(spec, Stored, e.Created)
}

// UpdateProject changes a stored project: change gets its spec and edits it. Errors: NotFound, Invalid, Conflict, Unavailable.
func (s *Store) UpdateProject(ctx context.Context, id string, change func(*Spec) error) (*Project, error) {
	if p := s.dir.Lookup(id); p == nil {
		return nil, errMissing
	} else if p.Source != Stored {
		return nil, errReadOnly
	}
	for range 5 {
		var e projectEntry
		revision, found, err := s.get(ctx, projectPrefix+id, &e)
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, errMissing
		}
		zone := e.Zone
		if err := change(&e.Spec); err != nil {
			return nil, err
		}
		switch {
		case e.ID != id:
			return nil, errRename
		case e.Zone != zone:
			return nil, errZone
		}
		if err := faults(&e.Spec); err != nil {
			return nil, err
		}
		if err := s.put(ctx, projectPrefix+id, e, revision); errors.Is(err, errRaced) {
			continue
		} else if err != nil {
			return nil, err
		}
		return New(e.Spec, Stored, e.Created)
	}
	return nil, errBusyChange
}

// CreateKey makes a key of a project ("" = of all) and returns it with its secret, which is kept nowhere. A zero expires is never.
// Errors: Invalid, NotFound, Conflict, Unavailable.
func (s *Store) CreateKey(ctx context.Context, project, name string, scope Scope, expires time.Time) (*Key, string, error) {
	switch {
	case project == "" && scope != Admin:
		return nil, "", errRootScope
	case project != "" && s.dir.Lookup(project) == nil:
		return nil, "", errMissing
	case len(name) > maxName || !utf8.ValidString(name) || !printable(name):
		return nil, "", apperr.New(apperr.Invalid, "bad_key", "A key's name is printable text of at most %d bytes.", maxName).On("name")
	case !expires.IsZero() && !expires.After(s.clock.Now()):
		return nil, "", apperr.New(apperr.Invalid, "bad_key", "expires is in the past.").On("expires")
	case s.count() >= maxKeys:
		return nil, "", apperr.New(apperr.Conflict, "too_many_keys", "There are as many keys as there may be.").Over(fmt.Sprintf("%d keys", maxKeys), "")
	}
	for range 5 {
		secret := Generate(scope)
		k := &Key{
			ID: KeyID(secret), Name: name, Project: project, Scope: scope, Sum: sha256.Sum256([]byte(secret)), Source: Stored,
			Created: s.clock.Now().UTC().Truncate(time.Second), Expires: expires.UTC(),
		}
		err := s.put(ctx, keyPrefix+k.ID, k.entry(), 0)
		if errors.Is(err, errRaced) { // 40 bits that somebody else drew as well
			continue
		}
		if err != nil {
			return nil, "", err
		}
		return s.current(k), secret, nil
	}
	return nil, "", errBusyChange
}

func printable(s string) bool {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

func (s *Store) count() int { return len(s.dir.now.Load().list) }

// current is the directory's version of a key, which knows its use.
func (s *Store) current(k *Key) *Key {
	if c := s.dir.Key(k.Project, k.ID); c != nil {
		return c
	}
	s.dir.mu.Lock()
	defer s.dir.mu.Unlock()
	k.used = s.dir.usage(k.ID)
	return k
}

// RevokeKey ends a key at once. Revoking twice is fine. Errors: NotFound, Conflict, Unavailable.
func (s *Store) RevokeKey(ctx context.Context, project, id string) (*Key, error) {
	return s.changeKey(ctx, project, id, func(k *Key) error {
		if k.Revoked.IsZero() {
			k.Revoked = s.clock.Now().UTC().Truncate(time.Second)
		}
		return nil
	})
}

// RotateKey makes a key with the name and scope of an old one, which goes on working for grace, but not longer than it would have.
// A key with a date of expiry passes its lifetime on. Errors as those of CreateKey and RevokeKey.
func (s *Store) RotateKey(ctx context.Context, project, id string, grace time.Duration) (old, made *Key, secret string, err error) {
	if old, err = s.changeable(project, id); err != nil {
		return nil, nil, "", err
	}
	now := s.clock.Now().UTC().Truncate(time.Second)
	if end := old.Ended(); !end.IsZero() && !now.Before(end) {
		return nil, nil, "", errKeyEnded
	}
	var expires time.Time
	if !old.Expires.IsZero() && !old.Created.IsZero() {
		expires = now.Add(old.Expires.Sub(old.Created))
	}
	if made, secret, err = s.CreateKey(ctx, project, old.Name, old.Scope, expires); err != nil {
		return nil, nil, "", err
	}
	old, err = s.changeKey(ctx, project, id, func(k *Key) error {
		if end := now.Add(grace); k.Expires.IsZero() || end.Before(k.Expires) {
			k.Expires = end
		}
		return nil
	})
	return old, made, secret, err
}

// changeable finds a key that the API may change.
func (s *Store) changeable(project, id string) (*Key, error) {
	k := s.dir.Key(project, id)
	switch {
	case k == nil:
		return nil, errNoKey
	case k.Source != Stored:
		return nil, errReadOnly
	}
	return k, nil
}

func (s *Store) changeKey(ctx context.Context, project, id string, change func(*Key) error) (*Key, error) {
	if _, err := s.changeable(project, id); err != nil {
		return nil, err
	}
	for range 5 {
		var e keyEntry
		revision, found, err := s.get(ctx, keyPrefix+id, &e)
		if err != nil {
			return nil, err
		}
		if !found || e.Project != project {
			return nil, errNoKey
		}
		k := &Key{ID: id, Name: e.Name, Project: e.Project, Scope: e.Scope, Source: Stored, Created: e.Created, Expires: e.Expires, Revoked: e.Revoked}
		if err := change(k); err != nil {
			return nil, err
		}
		e.Expires, e.Revoked = k.Expires, k.Revoked
		if err := s.put(ctx, keyPrefix+id, e, revision); errors.Is(err, errRaced) {
			continue
		} else if err != nil {
			return nil, err
		}
		return s.current(k), nil
	}
	return nil, errBusyChange
}
