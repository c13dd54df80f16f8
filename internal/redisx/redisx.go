// Package redisx connects to Redis: a child it manages itself, a single server, Sentinel or Cluster; it refuses servers that
// would lose counts.
package redisx

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Options says which Redis.
type Options struct {
	// URL names a running Redis, or is empty for a managed child. Several hosts are separated by commas:
	//
	//	redis://[user:password@]host[:port][/db]      rediss:// for TLS
	//	unix://[user:password@]/path/to/redis.sock
	//	redis+sentinel://[user:password@]host[:port],host…/master[/db]      rediss+sentinel://
	//	redis+cluster://[user:password@]host[:port],host…                   rediss+cluster://
	//
	// Options after "?": db, client_name, pool_size, dial_timeout, read_timeout, write_timeout (3s), skip_verify,
	// read_replicas (Sentinel and Cluster: Read may be answered by replicas), sentinel_username, sentinel_password.
	URL string
	// Dir is the managed child's own folder; made with mode 0700 when it is not there.
	Dir string
	Log *slog.Logger // nil: nothing is logged
}

// Info is what is known of the server.
type Info struct {
	Version string // "" until a check has succeeded
	Mode    string // "single", "sentinel" or "cluster"
	Address string // for logs: where, without credentials
	Managed bool
}

// Redis is a pair of clients of one Redis. Safe for concurrent use.
type Redis struct {
	// Commit never repeats a command by itself: after a connection error only the stored offset tells what happened (see
	// IsUnknown). It always talks to masters.
	Commit redis.UniversalClient
	// Read repeats what failed, three times by default, and talks to replicas where the URL allows it.
	Read redis.UniversalClient

	target  target
	child   *child
	version atomic.Pointer[string]
}

// Open starts or finds the Redis and checks it (see CheckServer). A Redis that cannot be reached is no error when a URL names it:
// the clients connect when it is there, and CheckServer tells. A managed child must come up before ctx ends; when its append-only
// file is large, that can take a second for each million commands.
func Open(ctx context.Context, o Options) (*Redis, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r := &Redis{}
	var err error
	if o.URL != "" {
		r.target, err = parseURL(o.URL)
	} else if r.child, err = startChild(ctx, o.Dir, o.Log); err == nil {
		r.target = target{mode: "single", options: redis.UniversalOptions{Addrs: []string{r.child.sock}}}
	}
	if err != nil {
		return nil, err
	}
	r.Commit, r.Read = r.target.clients()

	switch err := r.CheckServer(ctx); {
	case err == nil:
		o.Log.Info("Redis is there", "version", r.Info().Version, "mode", r.target.mode, "address", r.target.address(), "managed", o.URL == "")
	case r.child == nil && !errors.Is(err, ErrUnfit):
		o.Log.Warn("Redis does not answer yet; its clients keep trying", "address", r.target.address(), "error", err)
	default:
		return nil, errors.Join(err, r.Close(context.WithoutCancel(ctx)))
	}
	return r, nil
}

// Info tells what is known of the server.
func (r *Redis) Info() Info {
	i := Info{Mode: r.target.mode, Address: r.target.address(), Managed: r.child != nil}
	if v := r.version.Load(); v != nil {
		i.Version = *v
	}
	return i
}

// Close closes the clients; a managed child flushes its data and ends. It is killed when it takes longer than ctx or 10 s; what
// it had not yet written is counted again from the journal.
func (r *Redis) Close(ctx context.Context) error {
	err := errors.Join(r.Commit.Close(), r.Read.Close())
	if r.child != nil {
		err = errors.Join(err, r.child.close(ctx))
	}
	return err
}

// clients makes both clients; none connects before its first command.
func (t target) clients() (commit, read redis.UniversalClient) {
	o := t.options
	// One round trip, HELLO, opens a connection: RESP2 needs no watch for push messages, and neither the names of the
	// library nor maintenance notices are of use.
	o.Protocol = 2
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.ContextTimeoutEnabled = true
	o.DialTimeout = or(o.DialTimeout, 2*time.Second)
	o.ReadTimeout = or(o.ReadTimeout, 5*time.Second)
	o.WriteTimeout = or(o.WriteTimeout, 5*time.Second)
	o.DialerRetries = 1 // who waits for Redis has a backoff of its own
	o.FailingTimeoutSeconds = 2
	o.MasterName = t.master
	o.IsClusterMode = t.mode == "cluster"

	c := o
	c.MaxRetries = -1
	if t.mode == "cluster" {
		// A cluster client repeats a command after a lost connection as often as it follows redirections, whatever
		// MaxRetries says. So it follows none: MOVED comes back as an error, and the map of slots is read anew.
		c.MaxRedirects = -1
		cluster := redis.NewClusterClient(c.Cluster())
		cluster.AddHook(reload{cluster})
		commit = cluster
	} else {
		commit = redis.NewUniversalClient(&c)
	}
	if t.replicas {
		o.ReadOnly, o.RouteRandomly = true, true
	}
	return commit, redis.NewUniversalClient(&o)
}

func or(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

// reload has the map of slots read anew after a lost connection. The client would do so only after MOVED or a minute, and a dead
// master sends no MOVED.
type reload struct{ cluster *redis.ClusterClient }

func (h reload) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h reload) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if IsUnknown(err) {
			h.cluster.ReloadState(ctx)
		}
		return err
	}
}

func (h reload) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if IsUnknown(err) {
			h.cluster.ReloadState(ctx)
		}
		return err
	}
}

// LogClient sends what go-redis itself has to say to log, at debug level: every fault that matters also comes back as an error.
// It holds for the whole process.
func LogClient(log *slog.Logger) { redis.SetLogger(clientLog{log}) }

type clientLog struct{ log *slog.Logger }

func (l clientLog) Printf(ctx context.Context, format string, v ...any) {
	if l.log.Enabled(ctx, slog.LevelDebug) {
		l.log.DebugContext(ctx, "go-redis: "+fmt.Sprintf(format, v...))
	}
}
