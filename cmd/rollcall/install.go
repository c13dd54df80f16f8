package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/ident"
)

// installKey holds what must never change under existing counts. HASH, no TTL; written by the first start that names a field,
// changed by rebuild only. Fields: shards, journal (its identity), zone:<project>.
var installKey = "rc:{" + ident.Tag(0) + "}:meta:install"

const (
	shardsField  = "shards"
	journalField = "journal"
	zoneField    = "zone:" // and the project
)

var errMismatch = errors.New("this configuration does not fit the counts in Redis")

// checkInstall records what this node stands for in Redis, or compares it with what an earlier start recorded. An error that is
// not errMismatch means that Redis can't be asked now.
func (n *node) checkInstall(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	have, err := recordInstall(ctx, n.redis.Commit, n.install())
	if err != nil {
		return fmt.Errorf("reading %s: %w", installKey, err)
	}
	if err := compareInstall(n.install(), have); err != nil {
		return err
	}
	return n.zones.recorded(have)
}

func (n *node) install() map[string]string {
	m := map[string]string{shardsField: strconv.Itoa(n.c.Shards), journalField: n.journal.Identity()}
	if n.dir == nil { // rebuild: what is stored keeps its zone in any case
		for _, p := range n.c.Projects {
			m[zoneField+p.ID] = p.Zone
		}
		return m
	}
	for _, p := range n.dir.Projects() {
		m[zoneField+p.ID] = p.Zone
	}
	return m
}

// recordedShards is how many shards the counts in Redis are in; those of the configuration if nothing is recorded.
func (n *node) recordedShards(ctx context.Context) (int, error) {
	text, err := n.redis.Commit.HGet(ctx, installKey, shardsField).Result()
	if errors.Is(err, redis.Nil) {
		return n.c.Shards, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", installKey, err)
	}
	shards, err := strconv.Atoi(text)
	if err != nil || shards < 1 || shards > 256 {
		return 0, fmt.Errorf("%s: %q is no number of shards", installKey, text)
	}
	return shards, nil
}

// forgetInstall lets the next start record anew what its configuration says. The zones of projects that are not in it stay.
func (n *node) forgetInstall(ctx context.Context) error {
	fields := slices.Collect(maps.Keys(n.install()))
	if err := n.redis.Commit.HDel(ctx, installKey, fields...).Err(); err != nil {
		return fmt.Errorf("writing %s: %w", installKey, err)
	}
	return nil
}

// recordInstall adds the fields that are missing and returns all.
func recordInstall(ctx context.Context, r redis.UniversalClient, want map[string]string) (map[string]string, error) {
	have, err := r.HGetAll(ctx, installKey).Result()
	if err != nil {
		return nil, err
	}
	for field, value := range want { // a start that will be refused leaves nothing behind
		if old, ok := have[field]; ok && old != value {
			return have, nil
		}
	}
	for field, value := range want {
		if err := r.HSetNX(ctx, installKey, field, value).Err(); err != nil {
			return nil, err
		}
	}
	return r.HGetAll(ctx, installKey).Result()
}

// compareInstall reports every field that differs, with the way out.
func compareInstall(want, have map[string]string) error {
	var faults []string
	for _, field := range slices.Sorted(maps.Keys(want)) {
		if old, ok := have[field]; !ok || old == want[field] {
			continue
		}
		project, isZone := strings.CutPrefix(field, zoneField)
		switch {
		case isZone:
			faults = append(faults, fmt.Sprintf("project %s was counted in zone %s, the configuration says %s", project, have[field], want[field]))
		case field == shardsField:
			faults = append(faults, fmt.Sprintf("the counts are in %s shards, the configuration says %s", have[field], want[field]))
		default:
			faults = append(faults, fmt.Sprintf("the counts were made from journal %s, this one is %s", have[field], want[field]))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w:\n  %s\nSet it back; or count again by this configuration, while the journal still has its first record: rollcall rebuild all;\n"+
		"or start with a new data folder (and an empty Redis) and import again", errMismatch, strings.Join(faults, "\n  "))
}

// awaitInstall checks until it fits: a Redis that was away at the start is judged when it comes. False when ctx ends.
func (n *node) awaitInstall(ctx context.Context) bool {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := n.checkInstall(ctx)
		if err == nil {
			n.mismatch.Store(nil)
			return true
		}
		if errors.Is(err, errMismatch) && n.mismatch.Load() == nil {
			n.log.Error("the projector does not start", "err", err)
		}
		n.mismatch.Store(&err)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
	}
}
