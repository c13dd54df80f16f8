package main

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/rollcall/rollcall/counters/breakdown"
	"github.com/rollcall/rollcall/internal/project"
)

// zones knows the zone and the settings of every project that has events: those configured and stored, and those an earlier configuration had.
type zones struct {
	dir   *project.Directory
	store *project.Store
	log   *slog.Logger
	life  context.Context // when it ends, nobody waits any more

	mu      sync.Mutex
	old     map[string]*time.Location // of installKey
	unknown map[string]time.Time      // when it was last looked for
}

// recorded notes the zones that stand in the install key.
func (z *zones) recorded(install map[string]string) error {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.old = map[string]*time.Location{}
	for field, name := range install {
		id, ok := strings.CutPrefix(field, zoneField)
		if !ok {
			continue
		}
		loc, err := time.LoadLocation(name)
		if err != nil {
			return err
		}
		z.old[id] = loc
	}
	return nil
}

// known is a project's zone, nil for one that this node has not met.
func (z *zones) known(id string) *time.Location {
	if p := z.dir.Lookup(id); p != nil {
		return p.Location
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.old[id]
}

// of returns a project's zone; UTC for one that there never was.
func (z *zones) of(id string) *time.Location {
	if loc := z.known(id); loc != nil {
		return loc
	}
	if p := z.project(id); p != nil {
		return p.Location
	}
	return time.UTC
}

// exact names the events that a project has sets of.
func (z *zones) exact(id string) []string {
	if p := z.project(id); p != nil {
		return p.Exact
	}
	return project.DefaultExact()
}

// breakdowns are what a project is broken down by.
func (z *zones) breakdowns(id string) []breakdown.Spec {
	if p := z.project(id); p != nil {
		return specsOf(p)
	}
	return nil
}

func specsOf(p *project.Project) []breakdown.Spec {
	specs := make([]breakdown.Spec, len(p.Breakdowns))
	for i, b := range p.Breakdowns {
		specs[i] = breakdown.Spec{Event: b.Event, Props: b.Props, Top: b.Top}
	}
	return specs
}

// project finds a project; nil for one that there is not. An event of a project that another node has just made may come before that project
// is known here, so the store itself is asked; while it does not answer, nobody counts.
func (z *zones) project(id string) *project.Project {
	if p := z.dir.Lookup(id); p != nil {
		return p
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if time.Since(z.unknown[id]) < 10*time.Second {
		return nil
	}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		ctx, cancel := context.WithTimeout(z.life, 5*time.Second)
		p, err := z.store.Fetch(ctx, id)
		cancel()
		if err == nil && p != nil {
			return p
		}
		if err == nil || z.life.Err() != nil {
			break
		}
		z.log.Warn("a project's settings can't be looked up; counting waits", "project", id, "err", err)
		select {
		case <-time.After(wait):
		case <-z.life.Done():
		}
	}
	if len(z.unknown) >= 1000 {
		z.unknown = nil
	}
	if z.unknown == nil {
		z.unknown = map[string]time.Time{}
	}
	z.unknown[id] = time.Now()
	return nil
}
