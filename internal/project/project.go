// Package project is who may do what: projects with their settings, the keys that open them, and the directory in which each
// request's key is looked up.
//
// Projects and keys come from two places. Those of the configuration are read-only. Those made while the server runs are kept beside
// the journal (see Store), and every node watches them, so nothing needs a restart.
package project

import (
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/ident"
	"github.com/rollcall/rollcall/internal/limit"
)

// Spec is a project as people write it: in the configuration, and as JSON in the API. Fields that are left out get the defaults of
// Complete.
type Spec struct {
	ID         string         `json:"id" koanf:"id"`
	Zone       string         `json:"zone" koanf:"zone"`                 // IANA; whose calendar its days follow; never changes
	LateWindow clock.Duration `json:"late_window" koanf:"late_window"`   // 0 = the server's late_window
	Anonymous  string         `json:"anonymous" koanf:"anonymous"`       // who an event without a user is counted as: none, daily, stable
	Bots       string         `json:"bots" koanf:"bots"`                 // flag: kept apart; count: counted like people
	Origins    []string       `json:"origins" koanf:"origins"`           // web origins that may read answers; empty = the server's http.origins
	KeyRate    limit.Rate     `json:"key_rate" koanf:"key_rate"`         // events by each of its keys; zero = limits.key_rate
	AddrRate   limit.Rate     `json:"address_rate" koanf:"address_rate"` // events from each client address; zero = limits.address_rate
	SyncRate   limit.Rate     `json:"sync_rate" koanf:"sync_rate"`       // calls that wait for their result, by each key; zero = limits.sync_rate
	Frequency  []Frequency    `json:"frequency" koanf:"frequency"`
	Exact      []string       `json:"exact" koanf:"exact"` // events whose users are counted exactly too; * for all events together; nil = just that
	Breakdowns []Breakdown    `json:"breakdowns" koanf:"breakdowns"`
	Closed     bool           `json:"closed" koanf:"closed"` // its keys open nothing; what is counted stays
}

// Frequency is a rule: each user may send an event at most Limit times within any span of Per.
type Frequency struct {
	Event string         `json:"event" koanf:"event"`
	Limit int            `json:"limit" koanf:"limit"`
	Per   clock.Duration `json:"per" koanf:"per"`
}

// Breakdown names props by whose values an event is counted.
type Breakdown struct {
	Event string   `json:"event" koanf:"event"` // * for all events together
	Props []string `json:"props" koanf:"props"`
	Top   int      `json:"top,omitempty" koanf:"top"` // values of a prop on a day, beyond which they count as (other); 0 = 1000
}

// What a project does with events that have no user.
const (
	AnonymousNone   = "none"   // PV without UV
	AnonymousDaily  = "daily"  // one visitor for each address, user agent and local day: days can't be linked
	AnonymousStable = "stable" // one visitor for each address and user agent
)

// What a project does with bots.
const (
	BotsFlag  = "flag"  // stored, counted by `rollcall drops`, in no PV and no UV
	BotsCount = "count" // no difference is made
)

// The bounds of settings.
const (
	maxOrigins   = 100
	maxFrequency = 100
	maxPer       = 31 * 24 * time.Hour
	maxLate      = 400 * 24 * time.Hour
	maxName      = 64 // bytes of an event's or a key's name
	maxExact     = 100
	maxBreakdown = 100 // events
	maxProps     = 10  // of one event
	maxTop       = 10_000
)

// AnyEvent stands for all events together.
const AnyEvent = "*"

// DefaultExact is what a project counts exactly that says nothing else.
func DefaultExact() []string { return []string{AnyEvent} }

// Complete fills in what was left out.
func (s *Spec) Complete(zone string, late clock.Duration) {
	set := func(to *string, value string) {
		if *to == "" {
			*to = value
		}
	}
	set(&s.Zone, zone)
	set(&s.Anonymous, AnonymousNone)
	set(&s.Bots, BotsFlag)
	if s.LateWindow == 0 {
		s.LateWindow = late
	}
	if s.Exact == nil {
		s.Exact = DefaultExact()
	}
}

// Check reports every fault of a completed spec: the field's name, and what is wrong with it.
func (s *Spec) Check(fault func(field, text string)) {
	add := func(field, format string, args ...any) { fault(field, fmt.Sprintf(format, args...)) }
	if ident.Project(s.ID) != nil {
		add("id", "%q: want 1 to 32 of a-z 0-9 -", clip(s.ID))
	}
	if _, err := location(s.Zone); err != nil {
		add("zone", "%q is no IANA zone; they look like Asia/Shanghai", clip(s.Zone))
	}
	if d := time.Duration(s.LateWindow); d < time.Minute || d > maxLate {
		add("late_window", "%s: want 1m to %s", s.LateWindow, clock.Duration(maxLate))
	}
	oneOf := func(field, value string, allowed ...string) {
		for _, a := range allowed {
			if value == a {
				return
			}
		}
		add(field, "%q: want one of %s", clip(value), strings.Join(allowed, ", "))
	}
	oneOf("anonymous", s.Anonymous, AnonymousNone, AnonymousDaily, AnonymousStable)
	oneOf("bots", s.Bots, BotsFlag, BotsCount)
	CheckOrigins(s.Origins, fault)
	if r := s.SyncRate; !r.IsZero() {
		if err := limit.ValidateWindow(r.Count, r.Per, false); err != nil {
			add("sync_rate", "%s", apperr.As(err).Detail)
		}
	}
	s.checkFrequency(add)
	s.checkExact(add)
	s.checkBreakdowns(add)
}

func (s *Spec) checkBreakdowns(add func(field, format string, args ...any)) {
	if len(s.Breakdowns) > maxBreakdown {
		add("breakdowns", "%d events: at most %d", len(s.Breakdowns), maxBreakdown)
		return
	}
	isName := func(name string) bool { return name != "" && len(name) <= maxName && utf8.ValidString(name) }
	seen := map[string]bool{}
	for i, b := range s.Breakdowns {
		at := fmt.Sprintf("breakdowns[%d].", i)
		if !isName(b.Event) {
			add(at+"event", "want an event's name of 1 to %d bytes, or *", maxName)
		} else if seen[b.Event] {
			add(at+"event", "%q is there twice", b.Event)
		}
		seen[b.Event] = true
		if len(b.Props) < 1 || len(b.Props) > maxProps {
			add(at+"props", "%d props: want 1 to %d", len(b.Props), maxProps)
			continue
		}
		props := map[string]bool{}
		for k, prop := range b.Props {
			if !isName(prop) || props[prop] {
				add(fmt.Sprintf("%sprops[%d]", at, k), "want a prop's name of 1 to %d bytes, each once", maxName)
			}
			props[prop] = true
		}
		if b.Top < 0 || b.Top > maxTop {
			add(at+"top", "%d: want 1 to %d", b.Top, maxTop)
		}
	}
}

func (s *Spec) checkExact(add func(field, format string, args ...any)) {
	if len(s.Exact) > maxExact {
		add("exact", "%d events: at most %d", len(s.Exact), maxExact)
		return
	}
	seen := map[string]bool{}
	for i, name := range s.Exact {
		if name == "" || len(name) > maxName || !utf8.ValidString(name) {
			add(fmt.Sprintf("exact[%d]", i), "want an event's name of 1 to %d bytes, or *", maxName)
		} else if seen[name] {
			add(fmt.Sprintf("exact[%d]", i), "%q is there twice", name)
		}
		seen[name] = true
	}
}

func (s *Spec) checkFrequency(add func(field, format string, args ...any)) {
	if len(s.Frequency) > maxFrequency {
		add("frequency", "%d rules: at most %d", len(s.Frequency), maxFrequency)
		return
	}
	seen := map[string]bool{}
	for i, f := range s.Frequency {
		at := fmt.Sprintf("frequency[%d].", i)
		if f.Event == "" || len(f.Event) > maxName || !utf8.ValidString(f.Event) {
			add(at+"event", "want an event's name of 1 to %d bytes", maxName)
		} else if seen[f.Event] {
			add(at+"event", "%q has two rules", f.Event)
		}
		seen[f.Event] = true
		if f.Limit < 1 || f.Limit > 1000 {
			add(at+"limit", "%d: want 1 to 1000", f.Limit)
		}
		if d := time.Duration(f.Per); d < time.Second || d > maxPer {
			add(at+"per", "%s: want 1s to %s", f.Per, clock.Duration(maxPer))
		}
	}
}

// CheckOrigins reports every entry that is no web origin: https://shop.example, http://localhost:3000, null, or * for any.
func CheckOrigins(list []string, fault func(field, text string)) {
	if len(list) > maxOrigins {
		fault("origins", fmt.Sprintf("%d origins: at most %d", len(list), maxOrigins))
		return
	}
	for i, o := range list {
		if o == "*" || o == "null" {
			continue
		}
		u, err := url.Parse(o)
		if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != strings.ToLower(o) {
			fault(fmt.Sprintf("origins[%d]", i), fmt.Sprintf("%q: want scheme, host and port if any, as in https://shop.example; or *", clip(o)))
		}
	}
}

// clip keeps what is repeated to a client short.
func clip(s string) string {
	if len(s) > 64 {
		s = strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}

// location loads a zone. time.LoadLocation takes "" for UTC and "Local" for the machine's zone: neither names a zone.
func location(zone string) (*time.Location, error) {
	if zone == "" || zone == "Local" {
		return nil, fmt.Errorf("%q is no IANA zone", zone)
	}
	return time.LoadLocation(zone)
}

// Source says where a project or a key is defined.
type Source string

// The sources. Only what is stored can be changed while the server runs.
const (
	FromConfig Source = "config" // the configuration
	FromFile   Source = "file"   // a key file in the data folder
	Stored     Source = "stored" // made by the API, kept beside the journal
)

// Project is one tenant, ready for use. It does not change: a changed project is a new one.
type Project struct {
	Spec
	Location *time.Location
	Source   Source
	Created  time.Time // zero for one of the configuration

	frequency map[string]Frequency
}

// New makes a project of a spec that Check finds no fault in.
func New(s Spec, from Source, created time.Time) (*Project, error) {
	loc, err := location(s.Zone)
	if err != nil {
		return nil, fmt.Errorf("project %s: %w", s.ID, err)
	}
	if s.Exact == nil { // stored by a version that did not know of it
		s.Exact = DefaultExact()
	}
	p := &Project{Spec: s, Location: loc, Source: from, Created: created}
	if len(s.Frequency) > 0 {
		p.frequency = make(map[string]Frequency, len(s.Frequency))
		for _, f := range s.Frequency {
			p.frequency[f.Event] = f
		}
	}
	return p, nil
}

// Rule is the frequency rule of an event, if there is one.
func (p *Project) Rule(event string) (Frequency, bool) {
	f, ok := p.frequency[event]
	return f, ok
}
