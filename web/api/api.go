// Package api is the handlers of the HTTP API: each decodes a request, calls one method and encodes its answer.
package api

import (
	"context"
	"sync"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/ingest"
)

// Accepter takes events; *ingest.Ingest is one.
type Accepter interface {
	Accept(context.Context, ingest.Request) (*ingest.Result, error)
}

// Counter answers /v1/counts; *counters.Query is one.
type Counter interface {
	Counts(context.Context, counters.CountsRequest) (*counters.Counts, error)
}

// Handler answers a request or returns an error that its caller turns into a problem document.
type Handler func(*gin.Context) error

// Options of an API. All must be set.
type Options struct {
	Ingest   Accepter
	Counts   Counter
	Keys     *Keyring
	MaxBody  int64 // bytes of a request body as sent
	Version  string
	Registry prometheus.Registerer
}

// API holds the handlers.
type API struct {
	o       Options
	metrics metrics
}

// New returns an API and registers its metrics.
func New(o Options) *API {
	a := &API{o: o}
	a.metrics.init(o.Registry)
	return a
}

// metrics of ingest. Codes are rollcall's own fixed words, never what a client sent.
type metrics struct {
	received, accepted, duplicates prometheus.Counter
	rejected                       *prometheus.CounterVec
}

func (m *metrics) init(r prometheus.Registerer) {
	count := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m.received = count("rollcall_ingest_received_total", "Events in readable requests.")
	m.accepted = count("rollcall_ingest_accepted_total", "Events that are in the journal.")
	m.duplicates = count("rollcall_ingest_duplicates_total", "Events that a waiting client was told are duplicates.")
	m.rejected = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rollcall_ingest_rejected_total", Help: "Events refused, by code.",
	}, []string{"code"})
	r.MustRegister(m.received, m.accepted, m.duplicates, m.rejected)
}

func (m *metrics) add(r *ingest.Result) {
	m.received.Add(float64(r.Received))
	m.accepted.Add(float64(r.Accepted))
	if r.Duplicates > 0 {
		m.duplicates.Add(float64(r.Duplicates))
	}
	for i := range r.Rejected {
		m.rejected.WithLabelValues(r.Rejected[i].Code).Inc()
	}
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
