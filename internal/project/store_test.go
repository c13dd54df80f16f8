package project

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/journal"
)

var quiet = slog.New(slog.DiscardHandler)

func openKV(t *testing.T, dir string) (*journal.Journal, jetstream.KeyValue) {
	t.Helper()
	j, err := journal.Open(t.Context(), journal.Options{Dir: dir, MinFree: -1, Log: quiet, Clock: clock.System{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	kv, err := j.Definitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return j, kv
}

// node is one node's view.
type node struct {
	*Store
	dir *Directory
}

func openNode(t *testing.T, kv jetstream.KeyValue, c clock.Clock) node {
	t.Helper()
	dir := NewDirectory(c)
	s, err := OpenStore(t.Context(), kv, dir, c, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return node{s, dir}
}

func code(err error) string {
	var e *apperr.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return fmt.Sprint(err)
}

func until(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !reached(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not reached: " + what)
		}
	}
}

func (n node) mustProject(t *testing.T, s Spec) *Project {
	t.Helper()
	p, err := n.CreateProject(t.Context(), s, "UTC", clock.Duration(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (n node) mustKey(t *testing.T, project string, scope Scope, expires time.Time) (*Key, string) {
	t.Helper()
	k, secret, err := n.CreateKey(t.Context(), project, "a name", scope, expires)
	if err != nil {
		t.Fatal(err)
	}
	return k, secret
}

func TestAKeyWorksAtOnceHereAndSoonElsewhereAndAfterARestart(t *testing.T) {
	dir := t.TempDir()
	c := clock.NewManual(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
	j, kv := openKV(t, dir)
	here, there := openNode(t, kv, c), openNode(t, kv, c)
	here.mustProject(t, Spec{ID: "shop", Zone: "Asia/Shanghai"})
	k, secret := here.mustKey(t, "shop", Write, time.Time{})
	if found, err := here.dir.Find(secret); err != nil || found.ID != k.ID || found.Project != "shop" || found.Scope != Write {
		t.Errorf("at once: %+v, %v", found, err)
	}
	if !WellFormed(secret, Write) || secret[:12] != k.ID {
		t.Errorf("secret %q of key %s", secret, k.ID)
	}
	until(t, "known elsewhere", func() bool { _, err := there.dir.Find(secret); return err == nil })
	if p, err := there.dir.Project("shop"); err != nil || p.Location.String() != "Asia/Shanghai" || p.Source != Stored {
		t.Errorf("elsewhere: %+v, %v", p, err)
	}
	if p, err := there.Fetch(t.Context(), "shop"); err != nil || p.ID != "shop" {
		t.Errorf("Fetch: %+v, %v", p, err)
	}
	if p, err := there.Fetch(t.Context(), "none"); err != nil || p != nil {
		t.Errorf("Fetch of none: %+v, %v", p, err)
	}
	// Revoked elsewhere, it ends here too.
	if _, err := there.RevokeKey(t.Context(), "shop", k.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := there.dir.Find(secret); code(err) != "key_revoked" {
		t.Errorf("a revoked key: %v", err)
	}
	until(t, "revoked here", func() bool { _, err := here.dir.Find(secret); return code(err) == "key_revoked" })

	_, kept := here.mustKey(t, "shop", Read, time.Time{})
	here.Close(t.Context())
	there.Close(t.Context())
	if err := j.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, kv = openKV(t, dir)
	again := openNode(t, kv, c)
	if _, err := again.dir.Find(kept); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	if _, err := again.dir.Find(secret); code(err) != "key_revoked" {
		t.Errorf("a revoked key after a restart: %v", err)
	}
}

func TestExpiryAndRotation(t *testing.T) {
	c := clock.NewManual(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
	_, kv := openKV(t, t.TempDir())
	n := openNode(t, kv, c)
	n.mustProject(t, Spec{ID: "shop"})
	k, secret := n.mustKey(t, "shop", Read, c.Now().Add(time.Hour))
	c.Add(59 * time.Minute)
	if _, err := n.dir.Find(secret); err != nil {
		t.Errorf("a minute before the end: %v", err)
	}
	old, made, second, err := n.RotateKey(t.Context(), "shop", k.ID, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if !old.Expires.Equal(k.Expires) { // a grace never makes a key live longer
		t.Errorf("the old one ends at %v; want %v", old.Expires, k.Expires)
	}
	if made.Scope != Read || made.Name != k.Name || !made.Expires.Equal(c.Now().Add(time.Hour)) {
		t.Errorf("the new one: %+v", made)
	}
	c.Add(time.Minute)
	if _, err := n.dir.Find(secret); code(err) != "key_expired" {
		t.Errorf("at the end: %v", err)
	}
	if _, err := n.dir.Find(second); err != nil {
		t.Errorf("the new one: %v", err)
	}
	if _, _, _, err := n.RotateKey(t.Context(), "shop", k.ID, 0); code(err) != "key_ended" {
		t.Errorf("rotating an ended key: %v", err)
	}
	forever, third := n.mustKey(t, "shop", Admin, time.Time{})
	if _, made, _, err := n.RotateKey(t.Context(), "shop", forever.ID, 0); err != nil || !made.Expires.IsZero() {
		t.Errorf("rotating without grace: %+v, %v", made, err)
	}
	if _, err := n.dir.Find(third); code(err) != "key_expired" {
		t.Errorf("no grace: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	c := clock.NewManual(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
	_, kv := openKV(t, t.TempDir())
	n := openNode(t, kv, c)
	spec := Spec{ID: "fixed"}
	spec.Complete("UTC", clock.Duration(time.Hour))
	p, err := New(spec, FromConfig, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	n.dir.Configure([]*Project{p}, []*Key{{ID: "sha256_00000000", Project: "fixed", Scope: Read, Source: FromConfig}})
	n.mustProject(t, Spec{ID: "shop"})
	n.mustProject(t, Spec{ID: "other"})
	k, _ := n.mustKey(t, "other", Write, time.Time{})
	ctx := t.Context()
	create := func(s Spec) error {
		_, err := n.CreateProject(ctx, s, "UTC", clock.Duration(time.Hour))
		return err
	}
	update := func(id string, f func(*Spec)) error {
		_, err := n.UpdateProject(ctx, id, func(s *Spec) error { f(s); return nil })
		return err
	}
	key := func(project string, scope Scope, name string, expires time.Time) error {
		_, _, err := n.CreateKey(ctx, project, name, scope, expires)
		return err
	}
	revoke := func(project, id string) error {
		_, err := n.RevokeKey(ctx, project, id)
		return err
	}
	for i, x := range []struct {
		err  error
		want string
	}{
		{create(Spec{ID: "shop"}), "project_exists"},
		{create(Spec{ID: "fixed"}), "project_exists"},
		{create(Spec{ID: "Shop!"}), "bad_project"},
		{create(Spec{ID: "a", Zone: "Mars/Base"}), "bad_project"},
		{create(Spec{ID: "a", Anonymous: "maybe"}), "bad_project"},
		{create(Spec{ID: "a", Origins: []string{"shop.example"}}), "bad_project"},
		{create(Spec{ID: "a", Frequency: []Frequency{{Event: "x", Limit: 0, Per: clock.Duration(time.Hour)}}}), "bad_project"},
		{create(Spec{ID: "a", Frequency: []Frequency{{"x", 1, clock.Duration(time.Hour)}, {"x", 2, clock.Duration(time.Hour)}}}), "bad_project"},
		{update("none", func(*Spec) {}), "project_unknown"},
		{update("fixed", func(*Spec) {}), "read_only"},
		{update("shop", func(s *Spec) { s.Zone = "Asia/Tokyo" }), "zone_fixed"},
		{update("shop", func(s *Spec) { s.ID = "shop2" }), "id_fixed"},
		{update("shop", func(s *Spec) { s.Bots = "" }), "bad_project"},
		{key("none", Read, "", time.Time{}), "project_unknown"},
		{key("", Read, "", time.Time{}), "bad_key"},
		{key("shop", Read, "a\nb", time.Time{}), "bad_key"},
		{key("shop", Read, "", c.Now()), "bad_key"},
		{revoke("shop", k.ID), "key_not_found"}, // another project's
		{revoke("", k.ID), "key_not_found"},
		{revoke("fixed", "sha256_00000000"), "read_only"},
		{revoke("shop", "rcw_NONE"), "key_not_found"},
	} {
		if code(x.err) != x.want {
			t.Errorf("%d: %v; want %s", i, x.err, x.want)
		}
	}
	if err := update("shop", func(s *Spec) { s.Closed = true }); err != nil {
		t.Fatal(err)
	}
	if _, err := n.dir.Project("shop"); code(err) != "project_closed" {
		t.Errorf("a closed project: %v", err)
	}
	if p, err := n.dir.Any("shop"); err != nil || !p.Closed {
		t.Errorf("a closed project, to be managed: %+v, %v", p, err)
	}
}

// Changes of several nodes at once all get in.
func TestConcurrentChangesAreNotLost(t *testing.T) {
	_, kv := openKV(t, t.TempDir())
	c := clock.NewManual(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
	a, b := openNode(t, kv, c), openNode(t, kv, c)
	a.mustProject(t, Spec{ID: "shop"})
	until(t, "known to b", func() bool { return b.dir.Lookup("shop") != nil })
	var wg sync.WaitGroup
	for i, n := range []node{a, b} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for k := range 10 {
				origin := fmt.Sprintf("https://%d-%d.example", i, k)
				for {
					_, err := n.UpdateProject(context.Background(), "shop", func(s *Spec) error {
						s.Origins = append(s.Origins, origin)
						return nil
					})
					if err == nil {
						break
					}
					if code(err) != "changed_meanwhile" {
						t.Errorf("update: %v", err)
						return
					}
				}
			}
		}()
	}
	wg.Wait()
	if p := a.dir.Lookup("shop"); len(p.Origins) != 20 {
		until(t, "all 20 changes", func() bool { return len(a.dir.Lookup("shop").Origins) == 20 })
	}
}

// When a key was used is known to others after a stop.
func TestLastUseIsKept(t *testing.T) {
	_, kv := openKV(t, t.TempDir())
	c := clock.NewManual(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
	a := openNode(t, kv, c)
	a.mustProject(t, Spec{ID: "shop"})
	k, secret := a.mustKey(t, "shop", Write, time.Time{})
	if !k.LastUsed().IsZero() {
		t.Errorf("a new key was used at %v", k.LastUsed())
	}
	c.Add(time.Hour)
	if _, err := a.dir.Find(secret); err != nil {
		t.Fatal(err)
	}
	a.Close(t.Context())
	b := openNode(t, kv, c)
	if got := b.dir.Key("shop", k.ID).LastUsed(); !got.Equal(c.Now()) {
		t.Errorf("last used %v; want %v", got, c.Now())
	}
}

// An entry that can't be read must not take the others with it, nor what was known before.
func TestADamagedEntryIsLeftAlone(t *testing.T) {
	_, kv := openKV(t, t.TempDir())
	c := clock.NewManual(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
	n := openNode(t, kv, c)
	n.mustProject(t, Spec{ID: "shop"})
	_, secret := n.mustKey(t, "shop", Write, time.Time{})
	for key, value := range map[string]string{"project.bad": "{", "project.zone": `{"id":"zone","zone":"Nowhere/At_All"}`, "key.rcw_BAD": `{"scope":"write","sha256":"00"}`, "used.x": "soon"} {
		if _, err := kv.PutString(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	again := openNode(t, kv, c)
	if _, err := again.dir.Find(secret); err != nil || len(again.dir.Projects()) != 1 {
		t.Errorf("%v, %d projects; want the one good project and its key", err, len(again.dir.Projects()))
	}
}
