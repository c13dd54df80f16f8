package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/counters/breakdown"
	"github.com/rollcall/rollcall/counters/users"
	"github.com/rollcall/rollcall/ingest"
	"github.com/rollcall/rollcall/ingest/drops"
	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/config"
	"github.com/rollcall/rollcall/internal/journal"
	"github.com/rollcall/rollcall/internal/limit"
	"github.com/rollcall/rollcall/internal/memo"
	"github.com/rollcall/rollcall/internal/obs"
	"github.com/rollcall/rollcall/internal/ordinal"
	"github.com/rollcall/rollcall/internal/project"
	"github.com/rollcall/rollcall/internal/projection"
	"github.com/rollcall/rollcall/internal/redisx"
	"github.com/rollcall/rollcall/internal/visitor"
	"github.com/rollcall/rollcall/web"
	"github.com/rollcall/rollcall/web/api"
)

// node is one running rollcall: every part, in the order in which they are opened.
type node struct {
	c           config.Config
	log         *slog.Logger
	keys        keyFiles
	journal     *journal.Journal
	redis       *redisx.Redis
	dir         *project.Directory
	projects    *project.Store
	zones       *zones
	salts       *visitor.Salts
	cohorts     *users.Cohorts
	memo        *memo.Memo
	absent      *memo.Absent
	sketchError prometheus.Histogram // how far sketches were from the truth
	projector   *projection.Projector
	ingest      *ingest.Ingest
	server      *web.Server
	probe       probe

	life          context.Context // ends when the projector is to end
	endLife       context.CancelFunc
	mismatch      atomic.Pointer[error] // why the projector may not start
	projectorDone chan struct{}
}

// newNode opens every part. On an error nothing is left open.
func newNode(ctx context.Context, c config.Config, log *slog.Logger) (_ *node, err error) {
	n := &node{c: c, log: log, memo: memo.New(clock.System{}), absent: memo.NewAbsent(clock.System{}), sketchError: newSketchError()}
	n.life, n.endLife = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			n.endLife()
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(c.Shutdown.Grace))
			defer cancel()
			err = errors.Join(err, n.closeStores(end))
		}
	}()
	redisx.LogClient(log)
	var secure *tls.Config
	if c.TLS.Cert != "" {
		if secure, err = web.TLSConfig(c.TLS.Cert, c.TLS.Key, log.With("part", "web")); err != nil {
			return nil, err
		}
	}
	if err := n.openKeys(); err != nil {
		return nil, err
	}
	if err := n.openStores(ctx); err != nil {
		return nil, err
	}
	if err := n.openProjects(ctx); err != nil {
		return nil, err
	}
	if err := n.checkInstall(ctx); errors.Is(err, errMismatch) {
		return nil, err
	}
	n.projector, err = projection.New(projection.Options{
		Journal:     n.journal,
		Redis:       n.redis.Commit,
		Shards:      c.Shards,
		Projections: n.projections(),
		DedupDir:    filepath.Join(c.Data, "dedup"),
		DedupWindow: time.Duration(c.Dedup.Window),
		Check:       n.redis.CheckServer,
		Exclusive:   c.Journal.URL == "",
		Committed: func(records []projection.Record) {
			n.memo.Committed(records)
			n.absent.Committed(records)
		},
		Log:   log.With("part", "projector"),
		Clock: clock.System{},
	})
	if err != nil {
		return nil, err
	}
	registry := obs.NewRegistry(buildVersion())
	registry.MustRegister(n.collectors()...)
	o := web.Options{
		Ready:     n.ready,
		ForIngest: func(part string) bool { return part == partJournal },
		Registry:  registry,
		Version:   buildVersion(),
		TLS:       secure,
		Log:       log.With("part", "web"),
	}
	if o.API, err = n.api(); err != nil {
		return nil, err
	}
	n.server = web.New(o)
	return n, nil
}

// api is what the handlers need.
func (n *node) api() (api.Options, error) {
	c, now := n.c, clock.System{}
	proxies, err := visitor.ParseProxies(c.HTTP.TrustedProxies)
	if err != nil {
		return api.Options{}, err
	}
	limits := ingest.Limits{MaxBody: int64(c.Limits.MaxBody), MaxEvents: c.Limits.MaxEvents, MaxEvent: int(c.Limits.MaxEvent)}
	n.ingest = ingest.New(ingest.Options{Journal: n.journal, Clock: now, Limits: limits})
	counts := counters.NewQuery(counters.QueryOptions{Redis: n.redis.Read, Shards: c.Shards, Clock: now, Memo: n.memo})
	return api.Options{
		Ingest: n.ingest,
		Counts: counts,
		Users: users.NewQuery(users.QueryOptions{
			Redis: n.redis.Read, Shards: c.Shards, Clock: now, Memo: n.memo, Absent: n.absent, Counts: counts, Budget: int64(c.Limits.QueryBytes),
			Limit: time.Duration(c.Limits.QueryTime), Differs: n.sketchError.Observe,
		}),
		Cohorts:   n.cohorts,
		Breakdown: breakdown.NewQuery(breakdown.QueryOptions{Redis: n.redis.Read, Shards: c.Shards, Clock: now, Memo: n.memo}),
		Drops:     drops.NewQuery(drops.QueryOptions{Redis: n.redis.Read, Shards: c.Shards, Clock: now}),
		Directory: n.dir,
		Projects:  n.projects,
		Proxies:   proxies,
		Bots:      visitor.NewBots(knownAgents),
		Salts:     n.salts,
		Windows:   limit.NewWindows(limit.WindowOptions{Redis: n.redis.Commit, Shards: c.Shards, Clock: now}),
		Rates:     api.Rates{Key: c.Limits.KeyRate, Address: c.Limits.AddressRate, Sync: c.Limits.SyncRate},
		Origins:   c.HTTP.Origins,
		Zone:      c.Zone,
		Late:      c.LateWindow,
		MaxBody:   int64(c.Limits.MaxBody),
		Clock:     now,
	}, nil
}

// projections are all that there are, in the order in which they are folded.
func (n *node) projections() []projection.Projection {
	return []projection.Projection{
		ordinal.NewProjection(ordinal.Options{}), // first: those behind it use what it fills in
		counters.NewProjection(counters.Options{Zone: n.zones.of}),
		users.NewProjection(users.Options{Zone: n.zones.of, Exact: n.zones.exact}),
		breakdown.NewProjection(breakdown.Options{Zone: n.zones.of, Specs: n.zones.breakdowns}),
		drops.NewProjection(drops.Options{Zone: n.zones.of}),
	}
}

// knownAgents is how many user agents' verdicts are remembered.
const knownAgents = 10_000

// openProjects fills the directory from the configuration and from what is stored beside the journal.
func (n *node) openProjects(ctx context.Context) error {
	open, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	projects, keys, err := n.configured(n.c)
	if err != nil {
		return err
	}
	kv, err := n.journal.Definitions(open)
	if err != nil {
		return err
	}
	n.dir = project.NewDirectory(clock.System{})
	n.dir.Configure(projects, keys)
	if n.projects, err = project.OpenStore(open, kv, n.dir, clock.System{}, n.log.With("part", "projects")); err != nil {
		return err
	}
	n.zones = &zones{dir: n.dir, store: n.projects, log: n.log, life: n.life}
	n.salts = visitor.NewSalts(definitions{kv}, clock.System{})
	n.cohorts = users.NewCohorts(definitions{kv}, clock.System{})
	go n.sweepSalts()
	return nil
}

// openStores opens the journal and Redis.
func (n *node) openStores(ctx context.Context) (err error) {
	j := n.c.Journal
	open, cancel := openLimit(ctx, j.URL)
	defer cancel()
	n.journal, err = journal.Open(open, journal.Options{
		Dir:      filepath.Join(n.c.Data, "journal"),
		URL:      string(j.URL),
		MaxBytes: int64(j.MaxBytes),
		MaxAge:   time.Duration(j.MaxAge),
		MinFree:  int64(j.MinFree),
		Log:      n.log,
		Clock:    clock.System{},
	})
	if err != nil {
		return fmt.Errorf("opening the journal: %w", err)
	}
	open, cancel = openLimit(ctx, n.c.Redis.URL)
	defer cancel()
	n.redis, err = redisx.Open(open, redisx.Options{
		URL: string(n.c.Redis.URL),
		Dir: filepath.Join(n.c.Data, "redis"),
		Log: n.log.With("part", "redis"),
	})
	if err != nil {
		return fmt.Errorf("opening Redis: %w", err)
	}
	return nil
}

// startProjector runs the projector until stop. It ends by itself only with a fault, which it sends.
func (n *node) startProjector(faults chan<- error) {
	ctx := n.life
	n.projectorDone = make(chan struct{})
	go func() {
		defer close(n.projectorDone)
		if !n.awaitInstall(ctx) {
			return
		}
		if err := n.projector.Run(ctx); err != nil {
			faults <- fmt.Errorf("projector: %w", err)
		}
	}()
}

// stop ends everything in the order in which nothing is lost: readiness off, no new requests, those in flight answered (all while
// the projector goes on), then the projector, the journal, and Redis last. Each step has a deadline of its own, so that a slow one
// takes nothing from the next. What was answered 202 is in the journal whatever happens here. An error means that something did not
// end in time.
func (n *node) stop(s config.Shutdown) error {
	began, fifth := time.Now(), time.Duration(s.Grace)/5
	// step lasts until so many fifths of the grace have passed, but at least one.
	step := func(fifths time.Duration) (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), max(fifths*fifth-time.Since(began), fifth))
	}
	n.server.NotReady()
	time.Sleep(time.Duration(s.Delay))
	ctx, cancel := step(3)
	defer cancel()
	err := n.server.Stop(ctx)

	rest, cancel := step(4)
	defer cancel()
	n.ingest.Close(rest)
	n.endLife()
	if n.projectorDone != nil {
		ctx, cancel := step(4)
		defer cancel()
		select {
		case <-n.projectorDone:
		case <-ctx.Done():
			err = errors.Join(err, errors.New("the projector did not end in time"))
		}
	}
	ctx, cancel = step(5)
	defer cancel()
	return errors.Join(err, n.closeStores(ctx))
}

func (n *node) closeStores(ctx context.Context) (err error) {
	if n.projects != nil {
		n.projects.Close(ctx)
	}
	if n.journal != nil {
		err = n.journal.Close(ctx)
	}
	if n.redis != nil {
		err = errors.Join(err, n.redis.Close(ctx))
	}
	return err
}
