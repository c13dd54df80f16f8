package web

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rollcall/rollcall/ingest"
	"github.com/rollcall/rollcall/internal/project"
	"github.com/rollcall/rollcall/web/api"
	"github.com/rollcall/rollcall/web/assets"
	"github.com/rollcall/rollcall/web/openapi"
)

// routes is every URL there is, and who may use it: Keyed takes a key with the scope, which opens the project that the handler gets;
// Managed takes an admin key that opens every project; the others take no key.
func (s *Server) routes(a *api.API) {
	write := func(h api.Keyed) api.Handler { return a.Keyed(project.Write, h) }
	read := func(h api.Keyed) api.Handler { return a.Keyed(project.Read, h) }
	admin := func(h api.Keyed) api.Handler { return a.Keyed(project.Admin, h) }

	s.get("/", s.index)

	s.beacon("POST", "/v1/events", a, write(a.Events))
	s.beacon("GET", api.PixelPath, a, write(a.Pixel))
	s.engine.HEAD(api.PixelPath, s.handle("GET "+api.PixelPath, api.PixelHead))
	for _, call := range ingest.Calls { // the key may stand in the body, so Segment looks for it; its scope is Write as well
		s.beacon("POST", "/v1/"+call, a, a.Segment(call))
		if call != ingest.CallImport { // /v1/i is identify
			s.beacon("POST", "/v1/"+call[:1], a, a.Segment(call))
		}
	}
	s.get("/v1/counts", read(a.Counts))
	s.get("/v1/counts.csv", read(a.Counts))
	s.get("/v1/names", read(a.Names))
	s.get("/v1/breakdown", read(a.Breakdown))
	s.get("/v1/breakdown.csv", read(a.Breakdown))
	s.get("/v1/users", read(a.Users))
	s.get("/v1/users.csv", read(a.Users))
	s.get("/v1/active", read(a.Active))
	s.get("/v1/active.csv", read(a.Active))
	s.get("/v1/retention", read(a.Retention))
	s.get("/v1/retention.csv", read(a.Retention))
	s.post("/v1/users/count", read(a.Overlap))
	s.post("/v1/users/member", read(a.Member))
	s.post("/v1/users/list", admin(a.Members))
	s.get("/v1/cohorts", read(a.CohortNames))
	s.get("/v1/cohorts/:cohort", read(a.Cohort))
	s.on("PUT", "/v1/cohorts/:cohort", admin(a.SaveCohort))
	s.on("DELETE", "/v1/cohorts/:cohort", admin(a.DeleteCohort))
	s.get("/v1/drops", read(a.Drops))
	s.get("/v1/drops.csv", read(a.Drops))

	s.get("/v1/projects", a.Projects) // those of the caller's key
	s.post("/v1/projects", a.Managed(a.CreateProject))
	s.get("/v1/projects/:project", admin(a.Project))
	s.on("PATCH", "/v1/projects/:project", admin(a.UpdateProject))
	s.get("/v1/projects/:project/keys", admin(a.Keys))
	s.post("/v1/projects/:project/keys", admin(a.CreateKey))
	s.on("DELETE", "/v1/projects/:project/keys/:key", admin(a.RevokeKey))
	s.post("/v1/projects/:project/keys/:key/rotate", admin(a.RotateKey))
	s.get("/v1/keys", a.Managed(a.Keys))
	s.post("/v1/keys", a.Managed(a.CreateKey))
	s.on("DELETE", "/v1/keys/:key", a.Managed(a.RevokeKey))
	s.post("/v1/keys/:key/rotate", a.Managed(a.RotateKey))

	s.get("/rollcall.js", wrapStd(assets.Script()))
	s.get("/openapi.yaml", wrapStd(openapi.Document()))
	s.get("/docs", wrapStd(openapi.Page()))

	s.get("/healthz", api.Healthz)
	s.get("/readyz", api.Readyz(s.o.Ready, s.o.ForIngest, s.stopping.Load))
	s.get("/metrics", wrapStd(promhttp.HandlerFor(s.o.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})))
}

func (s *Server) on(method, path string, h api.Handler) {
	s.engine.Handle(method, path, s.handle(method+" "+path, h))
	s.urls = append(s.urls, method+" "+path)
}

func (s *Server) post(path string, h api.Handler) { s.on("POST", path, h) }

// get takes HEAD as well: net/http leaves the body out.
func (s *Server) get(path string, h api.Handler) {
	s.on("GET", path, h)
	s.engine.HEAD(path, s.handle("GET "+path, h))
}

// beacon is a route that pages of other origins send to.
func (s *Server) beacon(method, path string, a *api.API, h api.Handler) {
	s.on(method, path, a.CORS(h))
	s.engine.OPTIONS(path, s.handleAs(s.preflights, a.Preflight))
}

// index is GET /: what is here.
func (s *Server) index(c *gin.Context) error { return api.Index(c, s.o.Version, s.urls) }

func wrapStd(h http.Handler) api.Handler {
	return func(c *gin.Context) error {
		h.ServeHTTP(c.Writer, c.Request)
		return nil
	}
}
