// Package api is the handlers of the HTTP API: each decodes a request, calls one method and encodes its answer.
package api

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/counters/users"
	"github.com/rollcall/rollcall/ingest"
	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/limit"
	"github.com/rollcall/rollcall/internal/project"
	"github.com/rollcall/rollcall/internal/visitor"
)

// Accepter takes events; *ingest.Ingest is one.
type Accepter interface {
	Accept(context.Context, ingest.Request) (*ingest.Result, error)
}

// Counter answers /v1/counts and /v1/names; *counters.Query is one.
type Counter interface {
	Names(ctx context.Context, project string) (*counters.Names, error)
	Counts(context.Context, counters.CountsRequest) (*counters.Counts, error)
}

// Handler answers a request or returns an error that its caller turns into a problem document.
type Handler func(*gin.Context) error

// Options of an API. All must be set.
type Options struct {
	Ingest    Accepter
	Counts    Counter
	Users     UserCounter
	Cohorts   *users.Cohorts
	Breakdown Breaker
	Drops     Accountant
	Directory *project.Directory
	Projects  *project.Store
	Proxies   visitor.Proxies
	Bots      *visitor.Bots
	Salts     *visitor.Salts
	Windows   *limit.Windows
	Rates     Rates
	Origins   []string       // of projects that name none
	Zone      string         // of a new project that names none
	Late      clock.Duration // likewise
	MaxBody   int64          // bytes of a request body as sent
	Clock     clock.Clock
	Registry  prometheus.Registerer
	Log       *slog.Logger
}

// API holds the handlers.
type API struct {
	o         Options
	metrics   metrics
	keys      *limit.Buckets
	addresses *limit.Buckets
	warned    onceASecond
}

// New returns an API and registers its metrics.
func New(o Options) *API {
	a := &API{o: o, keys: limit.NewBuckets(maxLimitedKeys), addresses: limit.NewBuckets(maxLimitedAddresses)}
	a.metrics.init(o.Registry)
	return a
}

// onceASecond keeps a log from being flooded.
type onceASecond struct{ last atomic.Int64 }

func (o *onceASecond) now() bool {
	now, last := time.Now().Unix(), o.last.Load()
	return now != last && o.last.CompareAndSwap(last, now)
}

// metrics of ingest. Codes are rollcall's own fixed words, never what a client sent.
type metrics struct {
	accounts
	limited, storeDown map[string]prometheus.Counter
	forwarded          map[visitor.Mark]prometheus.Counter
}

func (m *metrics) init(r prometheus.Registerer) {
	m.accounts.init(r)
	m.limited = each(r, "rollcall_limited_total", "Requests (of tier frequency: events) refused for a rate, by tier.", "tier", "key", "address", "sync", "frequency")
	m.storeDown = each(r, "rollcall_limit_store_down_total", "Requests whose limit could not be looked up in Redis, by what became of them.", "outcome", "passed", "refused")
	m.forwarded = map[visitor.Mark]prometheus.Counter{}
	marks := []visitor.Mark{visitor.Direct, visitor.Forwarded, visitor.Unparsable, visitor.Untrusted}
	names := make([]string, len(marks))
	for i, mark := range marks {
		names[i] = mark.String()
	}
	byName := each(r, "rollcall_client_address_total", "Client addresses looked at, by where they came from.", "from", names...)
	for i, mark := range marks {
		m.forwarded[mark] = byName[names[i]]
	}
}

// each registers a counter with one series for each value of its label.
func each(r prometheus.Registerer, name, help, label string, values ...string) map[string]prometheus.Counter {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	r.MustRegister(v)
	m := map[string]prometheus.Counter{}
	for _, value := range values {
		m[value] = v.WithLabelValues(value)
	}
	return m
}

// buffers for answers that are written at once.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 1<<10); return &b }}

// Header values that are set often, made once.
var (
	jsonType    = []string{"application/json"}
	problemType = []string{"application/problem+json"}
	csvType     = []string{"text/csv; charset=utf-8"}
	noStore     = []string{"no-store"}
)

func send(c *gin.Context, status int, contentType []string, body []byte) {
	h := c.Writer.Header()
	h["Content-Type"] = contentType
	h["Cache-Control"] = noStore
	c.Writer.WriteHeader(status)
	// A client that has gone away is its own matter: there is nobody left to tell.
	_, _ = c.Writer.Write(body)
}
