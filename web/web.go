// Package web meets HTTP: the map of URLs, what happens around every handler, and how the server starts and stops.
package web

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/web/api"
)

// Options of a Server. All must be set but TLS.
type Options struct {
	API       api.Options
	Ready     api.Ready
	ForIngest func(part string) bool // whether taking events needs a part of Ready
	Registry  *prometheus.Registry
	Version   string
	TLS       *tls.Config // nil = plain HTTP
	Log       *slog.Logger
}

// Server is the HTTP server. Serve it once.
type Server struct {
	o          Options
	engine     *gin.Engine
	http       *http.Server
	metrics    *metrics
	urls       []string
	preflights *routeMetrics // of all routes together
	access     bool          // every request is logged
	stopping   atomic.Bool
	inFlight   atomic.Int64 // handlers running
	warned     atomic.Int64 // unix second of the last warning
}

// How long a client may take. Everything a client holds is bounded by one of them.
const (
	headerTimeout = 10 * time.Second
	readTimeout   = 60 * time.Second            // the whole request
	writeTimeout  = readTimeout + 2*api.MaxWait // from the end of the header to the end of the answer
	idleTimeout   = 2 * time.Minute             // between requests
	maxHeader     = 16 << 10                    // bytes
)

// New returns a server that is not listening yet.
func New(o Options) *Server {
	gin.SetMode(gin.ReleaseMode)
	s := &Server{o: o, engine: gin.New(), access: o.Log.Enabled(context.Background(), slog.LevelDebug)}
	s.metrics = newMetrics(o.Registry)
	e := s.engine
	e.HandleMethodNotAllowed = true
	e.RedirectTrailingSlash = false
	// gin's own idea of a client's address is not used: see internal/visitor.
	if err := e.SetTrustedProxies(nil); err != nil {
		panic(err)
	}
	s.preflights = s.metrics.route("OPTIONS")
	o.API.Registry, o.API.Log = o.Registry, o.Log
	s.routes(api.New(o.API))
	unmatched := s.metrics.route("unmatched")
	e.NoRoute(s.handleAs(unmatched, func(*gin.Context) error { return errNoRoute }))
	e.NoMethod(s.handleAs(unmatched, func(c *gin.Context) error { return errNoMethod }))
	s.http = &http.Server{
		Handler:           e,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		TLSConfig:         o.TLS,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	return s
}

var (
	errNoRoute  = apperr.New(apperr.NotFound, "url_unknown", "There is nothing at this URL; GET / lists what there is.")
	errNoMethod = apperr.New(apperr.NotFound, "method_not_allowed", "This URL does not take this method; the Allow header names those it takes.")
	errFault    = apperr.New(apperr.Internal, "internal", "An unexpected fault; it has been logged under this request id.")
)

// handle puts around a handler what every request gets: metrics, a problem document for an error, and a 500 for a panic.
func (s *Server) handle(route string, h api.Handler) gin.HandlerFunc {
	return s.handleAs(s.metrics.route(route), h)
}

func (s *Server) handleAs(m *routeMetrics, h api.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		began := time.Now()
		s.inFlight.Add(1)
		defer s.done(c, m, began) // whatever happens above it
		defer func() {
			if p := recover(); p != nil {
				s.recovered(c, m, p)
			}
		}()
		if err := h(c); err != nil {
			s.fail(c, m, err)
		}
	}
}

func (s *Server) done(c *gin.Context, m *routeMetrics, began time.Time) {
	s.inFlight.Add(-1)
	took := time.Since(began)
	m.observe(c.Writer.Status(), took)
	if s.access {
		// Never the query: it may hold a key.
		s.o.Log.Debug("request", "route", m.name, "status", c.Writer.Status(), "took", took, "peer", c.Request.RemoteAddr)
	}
}

// fail answers with a problem document and logs what only the operator may see.
func (s *Server) fail(c *gin.Context, m *routeMetrics, err error) {
	e := apperr.As(err)
	status := api.Status(e.Kind)
	if e == errNoMethod {
		status = http.StatusMethodNotAllowed
	}
	id := rand.Text()
	switch {
	case c.Request.Context().Err() != nil: // the client went away, and whatever it waited for ended
		s.o.Log.Debug("request abandoned", "request_id", id, "route", m.name, "err", err)
	case status == http.StatusInternalServerError:
		s.o.Log.Error("request failed", "request_id", id, "route", m.name, "err", err)
	case status == http.StatusServiceUnavailable && s.mayWarn():
		s.o.Log.Warn("request refused", "request_id", id, "route", m.name, "err", err)
	default:
		s.o.Log.Debug("request refused", "request_id", id, "route", m.name, "err", err)
	}
	if status == http.StatusInternalServerError {
		e = errFault
	}
	if c.Writer.Written() {
		panic(http.ErrAbortHandler) // half an answer must not look like a whole one
	}
	api.Problem(c, status, e, id)
}

// mayWarn is true once a second: while the journal is full, every request is refused.
func (s *Server) mayWarn() bool {
	now, last := time.Now().Unix(), s.warned.Load()
	return now != last && s.warned.CompareAndSwap(last, now)
}

func (s *Server) recovered(c *gin.Context, m *routeMetrics, p any) {
	if p == http.ErrAbortHandler {
		panic(p)
	}
	id := rand.Text()
	s.o.Log.Error("panic", "request_id", id, "route", m.name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if c.Writer.Written() {
		panic(http.ErrAbortHandler)
	}
	api.Problem(c, http.StatusInternalServerError, errFault, id)
}

// Serve answers requests on l until Stop. It returns nil after Stop.
func (s *Server) Serve(l net.Listener) error {
	serve := s.http.Serve
	if s.o.TLS != nil {
		serve = func(l net.Listener) error { return s.http.ServeTLS(l, "", "") }
	}
	if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("web: %w", err)
	}
	return nil
}

// NotReady turns readiness off while requests are still answered.
func (s *Server) NotReady() { s.stopping.Store(true) }

// cutTime is how long handlers get to notice that their connection is gone.
const cutTime = 2 * time.Second

// Stop takes no new connections and waits for the requests in flight. When ctx ends those left are cut: a client that has sent
// half a request has been promised nothing. The error tells that even then a handler did not return.
func (s *Server) Stop(ctx context.Context) error {
	s.NotReady()
	if err := s.http.Shutdown(ctx); err == nil {
		return nil
	}
	s.o.Log.Warn("cutting the requests that did not end in time", "requests", s.inFlight.Load())
	if err := s.http.Close(); err != nil {
		s.o.Log.Warn("closing connections", "err", err)
	}
	for end := time.Now().Add(cutTime); s.inFlight.Load() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("web: %d requests did not end", s.inFlight.Load())
		}
	}
	return nil
}
