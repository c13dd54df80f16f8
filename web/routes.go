package web

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rollcall/rollcall/web/api"
	"github.com/rollcall/rollcall/web/assets"
)

// routes is every URL there is.
func (s *Server) routes(a *api.API) {
	s.get("/", a.Index)

	s.post("/v1/events", a.Events)
	s.get("/v1/counts", a.Counts)
	s.get("/v1/counts.csv", a.Counts)

	s.get("/rollcall.js", wrapStd(assets.Script()))
	s.head("/rollcall.js", wrapStd(assets.Script()))

	s.get("/healthz", api.Healthz)
	s.get("/readyz", api.Readyz(s.o.Ready, s.o.ForIngest, s.stopping.Load))
	s.get("/metrics", wrapStd(promhttp.HandlerFor(s.o.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})))
}

func (s *Server) get(path string, h api.Handler)  { s.engine.GET(path, s.handle("GET "+path, h)) }
func (s *Server) head(path string, h api.Handler) { s.engine.HEAD(path, s.handle("HEAD "+path, h)) }
func (s *Server) post(path string, h api.Handler) { s.engine.POST(path, s.handle("POST "+path, h)) }

func wrapStd(h http.Handler) api.Handler {
	return func(c *gin.Context) error {
		h.ServeHTTP(c.Writer, c.Request)
		return nil
	}
}
