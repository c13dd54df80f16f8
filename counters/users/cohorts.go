package users

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/ident"
)

// The bounds of saved cohorts.
const (
	MaxSaved       = 1000     // of a project
	maxCohortBytes = 32 << 10 // of an expression as JSON
)

// KV keeps definitions. A key has letters, digits, dots and hyphens.
type KV interface {
	Get(ctx context.Context, key string) (value []byte, found bool, err error)
	Put(ctx context.Context, key string, value []byte) error
	Delete(ctx context.Context, key string) error
	Keys(ctx context.Context, prefix string) ([]string, error)
}

// Saved is a named expression. Its ranges by period move on with the days.
type Saved struct {
	Name       string     `json:"name"`
	Expression Expression `json:"expression"`
	Changed    time.Time  `json:"changed"`
}

// Cohorts are the saved expressions of all projects. Errors of its methods: apperr NotFound (cohort_unknown), Invalid (bad_cohort_name,
// bad_expression, expression_too_large), Conflict (too_many_cohorts), Unavailable (definitions_unavailable).
type Cohorts struct {
	kv    KV
	clock clock.Clock
}

// NewCohorts makes Cohorts.
func NewCohorts(kv KV, c clock.Clock) *Cohorts { return &Cohorts{kv, c} }

func cohortPrefix(project string) string { return "cohort." + project + "." }

// ValidCohort checks a cohort's name. Error: Invalid (bad_cohort_name).
func ValidCohort(name string) error {
	_, err := cohortKey("", name)
	return err
}

func cohortKey(project, name string) (string, error) {
	if ident.Project(name) != nil { // the same rule: people read it in URLs
		return "", apperr.New(apperr.Invalid, "bad_cohort_name", "A cohort's name is 1 to %d characters of a-z, 0-9 and the hyphen.", ident.MaxProject).On("name")
	}
	return cohortPrefix(project) + name, nil
}

func away(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return apperr.New(apperr.Unavailable, "definitions_unavailable", "The saved cohorts can't be reached just now.").After(time.Second).With(err)
}

func unknown(name string) error {
	return apperr.New(apperr.NotFound, "cohort_unknown", "The project has no cohort %q.", name).On("cohort")
}

// Get finds a cohort.
func (c *Cohorts) Get(ctx context.Context, project, name string) (*Saved, error) {
	key, err := cohortKey(project, name)
	if err != nil {
		return nil, err
	}
	b, found, err := c.kv.Get(ctx, key)
	if err != nil {
		return nil, away(err)
	}
	if !found {
		return nil, unknown(name)
	}
	s := &Saved{}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("the stored cohort %s: %w", key, err)
	}
	return s, nil
}

// Put saves a cohort, instead of one of the same name.
func (c *Cohorts) Put(ctx context.Context, project, name string, e Expression) (*Saved, error) {
	key, err := cohortKey(project, name)
	if err != nil {
		return nil, err
	}
	if err := e.Check(); err != nil {
		return nil, err
	}
	s := &Saved{name, e, c.clock.Now().UTC().Truncate(time.Second)}
	b, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	if len(b) > maxCohortBytes {
		return nil, apperr.New(apperr.Invalid, "expression_too_large", "A saved expression has at most %d KiB.", maxCohortBytes>>10).On("expression").
			Over(fmt.Sprintf("%d KiB", maxCohortBytes>>10), "")
	}
	names, err := c.kv.Keys(ctx, cohortPrefix(project))
	if err != nil {
		return nil, away(err)
	}
	if len(names) >= MaxSaved && !slices.Contains(names, key) {
		return nil, apperr.New(apperr.Conflict, "too_many_cohorts", "The project has as many cohorts as it may have: delete one.").
			Over(fmt.Sprintf("%d cohorts", MaxSaved), "")
	}
	if err := c.kv.Put(ctx, key, b); err != nil {
		return nil, away(err)
	}
	return s, nil
}

// Delete forgets a cohort; deleted is false if there was none.
func (c *Cohorts) Delete(ctx context.Context, project, name string) (deleted bool, err error) {
	key, err := cohortKey(project, name)
	if err != nil {
		return false, err
	}
	if _, deleted, err = c.kv.Get(ctx, key); err == nil && deleted {
		err = c.kv.Delete(ctx, key)
	}
	if err != nil {
		return false, away(err)
	}
	return deleted, nil
}

// List names the cohorts of a project, in order.
func (c *Cohorts) List(ctx context.Context, project string) ([]string, error) {
	keys, err := c.kv.Keys(ctx, cohortPrefix(project))
	if err != nil {
		return nil, away(err)
	}
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = strings.TrimPrefix(k, cohortPrefix(project))
	}
	slices.Sort(names)
	return names, nil
}
