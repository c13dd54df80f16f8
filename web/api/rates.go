package api

import (
	"context"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rollcall/rollcall/ingest"
	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/limit"
	"github.com/rollcall/rollcall/internal/project"
)

// Rates are the limits of projects that say nothing else. Zero = none.
type Rates struct {
	Key, Address limit.Rate // events
	Sync         limit.Rate // calls
}

const (
	maxLimitedKeys      = 1 << 14 // buckets of some 300 bytes
	maxLimitedAddresses = 1 << 17
)

var errRate = apperr.New(apperr.RateLimited, "rate_limited", "Too much at once; wait as long as Retry-After says and send the same again. Nothing was stored.")

func either(own, common limit.Rate) limit.Rate {
	if own.IsZero() {
		return common
	}
	return own
}

// limit refuses a request whose key or address has used up its rate, before its body is read, and lets Accept ask again with the number
// of events. Admin keys have no limit. It needs no Redis.
func (v *visit) limit(r *ingest.Request) error {
	a, p := v.a, v.who.Project
	key, address := either(p.KeyRate, a.o.Rates.Key), either(p.AddrRate, a.o.Rates.Address)
	if key.IsZero() && address.IsZero() || v.who.Key.Scope == project.Admin {
		return nil
	}
	// The address first: whoever is over their own limit takes nothing from a key that others share.
	ask := func(take func(b *limit.Buckets, name string, r limit.Rate) limit.State) error {
		if !address.IsZero() {
			if s := take(a.addresses, limit.AddressName(v.address()), address); !s.OK {
				a.metrics.limited["address"].Inc()
				return refuse(v.c, s, "address", address, "limits.address_rate")
			}
		}
		if !key.IsZero() {
			if s := take(a.keys, v.who.Key.ID, key); !s.OK {
				a.metrics.limited["key"].Inc()
				return refuse(v.c, s, "key", key, "limits.key_rate")
			}
		}
		return nil
	}
	now := a.o.Clock.Now()
	r.Admit = func(events int) error {
		return ask(func(b *limit.Buckets, name string, r limit.Rate) limit.State { return b.Take(name, r, events, now) })
	}
	return ask(func(b *limit.Buckets, name string, r limit.Rate) limit.State { return b.Peek(name, r, now) })
}

// refuse sets the headers of a limit that was passed and returns its error: 429, or 413 for more than could ever pass at once.
func refuse(c *gin.Context, s limit.State, field string, r limit.Rate, option string) error {
	h := c.Writer.Header()
	h["Ratelimit-Limit"] = []string{strconv.Itoa(s.Limit)}
	h["Ratelimit-Remaining"] = []string{strconv.Itoa(s.Remaining)}
	h["Ratelimit-Reset"] = []string{seconds(s.Reset)}
	if s.RetryAfter == 0 {
		return apperr.New(apperr.TooLarge, ingest.CodeTooMany, "One request can't have more events than its rate lets through at once; send fewer at a time. Nothing was stored.").
			On(field).Over(strconv.Itoa(s.Limit)+" events", option)
	}
	return errRate.On(field).Over(r.String(), option).After(s.RetryAfter)
}

// syncRate counts a call that waits for its result against its key's limit over all nodes. When Redis can't be asked, the call is refused:
// it could not be answered either.
func (a *API) syncRate(c *gin.Context, who Caller) error {
	rate := either(who.Project.SyncRate, a.o.Rates.Sync)
	if rate.IsZero() {
		return nil
	}
	states, err := a.o.Windows.Take(c.Request.Context(), []limit.Call{{
		Project: who.Project.ID, Kind: "sync", Name: []string{who.Key.ID}, Limit: rate.Count, Per: rate.Per,
	}})
	if err != nil {
		a.metrics.storeDown["refused"].Inc()
		return err
	}
	if s := states[0]; !s.OK {
		a.metrics.limited["sync"].Inc()
		return refuse(c, s, "key", rate, "limits.sync_rate")
	}
	return nil
}

// frequency is a project's rules of how often a user may send an event, for one request.
type frequency struct {
	visit *visit
	waits bool
	retry time.Duration // until the first of the refused would pass
}

// Limits implements ingest.Frequency.
func (f *frequency) Limits(event string) bool {
	_, ok := f.visit.who.Project.Rule(event)
	return ok
}

// Refused implements ingest.Frequency. An event without a user counts for its client's address, or the rule would be easy to get
// around. When Redis can't be asked, beacons pass and whoever waits for the result is refused.
func (f *frequency) Refused(ctx context.Context, events []ingest.Limited) (refused []int, err error) {
	a, p := f.visit.a, f.visit.who.Project
	calls := make([]limit.Call, len(events))
	for i, e := range events {
		rule, _ := p.Rule(e.Event)
		name := []string{e.Event, "user", e.User}
		if e.User == "" {
			name = []string{e.Event, "address", limit.AddressName(f.visit.address())}
		}
		calls[i] = limit.Call{Project: p.ID, Kind: "freq", Name: name, ID: e.ID, Limit: rule.Limit, Per: time.Duration(rule.Per)}
	}
	states, err := a.o.Windows.Take(ctx, calls)
	if err != nil {
		if f.waits {
			a.metrics.storeDown["refused"].Inc()
			return nil, err
		}
		a.metrics.storeDown["passed"].Inc()
		if a.warned.now() {
			a.o.Log.Warn("frequency rules can't be looked up: events pass", "err", err)
		}
		return nil, nil
	}
	for i, s := range states {
		if s.OK {
			continue
		}
		a.metrics.limited["frequency"].Inc()
		refused = append(refused, events[i].Index)
		if f.retry == 0 || s.RetryAfter < f.retry {
			f.retry = s.RetryAfter
		}
	}
	return refused, nil
}
