package web

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/journal"
	"github.com/rollcall/rollcall/internal/project"
)

// withStore gives a fixture a real store of projects and keys.
func withStore(t *testing.T, f *fixture) *fixture {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	j, err := journal.Open(t.Context(), journal.Options{Dir: t.TempDir(), MinFree: -1, Log: log, Clock: clock.System{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	kv, err := j.Definitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, err := project.OpenStore(t.Context(), kv, f.dir, clock.System{}, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	f.o.API.Projects = s
	f.o.Registry = prometheus.NewRegistry()
	f.Server = New(f.o)
	return f
}

// needs is what each route that is not open to everybody takes. A route that is not here must be in open: a new route is a decision.
var needs = map[string]project.Scope{
	"POST /v1/events": project.Write, "GET /v1/pixel.gif": project.Write,
	"POST /v1/track": project.Write, "POST /v1/page": project.Write, "POST /v1/screen": project.Write, "POST /v1/identify": project.Write,
	"POST /v1/alias": project.Write, "POST /v1/group": project.Write, "POST /v1/batch": project.Write, "POST /v1/import": project.Write,
	"POST /v1/t": project.Write, "POST /v1/p": project.Write, "POST /v1/s": project.Write, "POST /v1/i": project.Write,
	"POST /v1/a": project.Write, "POST /v1/g": project.Write, "POST /v1/b": project.Write,

	"GET /v1/counts": project.Read, "GET /v1/counts.csv": project.Read,
	"GET /v1/names": project.Read, "GET /v1/breakdown": project.Read, "GET /v1/breakdown.csv": project.Read,
	"GET /v1/users": project.Read, "GET /v1/users.csv": project.Read, "GET /v1/active": project.Read, "GET /v1/active.csv": project.Read,
	"GET /v1/retention": project.Read, "GET /v1/retention.csv": project.Read, "POST /v1/users/count": project.Read,
	"POST /v1/users/member": project.Read, "POST /v1/users/list": project.Admin, "GET /v1/cohorts": project.Read,
	"GET /v1/cohorts/:cohort": project.Read, "PUT /v1/cohorts/:cohort": project.Admin, "DELETE /v1/cohorts/:cohort": project.Admin,
	"GET /v1/drops": project.Read, "GET /v1/drops.csv": project.Read,
	"GET /v1/projects": project.Admin, "POST /v1/projects": root,
	"GET /v1/projects/:project": project.Admin, "PATCH /v1/projects/:project": project.Admin,
	"GET /v1/projects/:project/keys": project.Admin, "POST /v1/projects/:project/keys": project.Admin,
	"DELETE /v1/projects/:project/keys/:key": project.Admin, "POST /v1/projects/:project/keys/:key/rotate": project.Admin,
	"GET /v1/keys": root, "POST /v1/keys": root, "DELETE /v1/keys/:key": root, "POST /v1/keys/:key/rotate": root,
}

// root is an admin key that opens every project.
const root = project.Admin + 1

var open = map[string]bool{
	"GET /": true, "GET /rollcall.js": true, "GET /healthz": true, "GET /readyz": true, "GET /metrics": true,
	"GET /openapi.yaml": true, "GET /docs": true,
	"HEAD /v1/pixel.gif": true, // counts nothing
}

// Every route with every kind of key. What a key must not do is refused with 401 or 403 whatever else is wrong with the request, and
// nothing reaches the rooms behind.
func TestEveryRouteWithEveryKindOfKey(t *testing.T) {
	f := setUp(t, slog.LevelInfo, "demo", "other")
	past := time.Now().Add(-time.Hour)
	expired, revoked := newKey("rca_expired", "", project.Admin), newKey("rca_revoked", "", project.Admin)
	expired.Expires, revoked.Revoked = past, past
	f.dir.Configure(
		[]*project.Project{newProject(t, project.Spec{ID: "demo"}), newProject(t, project.Spec{ID: "other"}), newProject(t, project.Spec{ID: "shut", Closed: true})},
		[]*project.Key{
			newKey("rca_root", "", project.Admin), newKey("rcw_demo", "demo", project.Write), newKey("rcr_demo", "demo", project.Read),
			newKey("rca_demo", "demo", project.Admin), newKey("rcw_other", "other", project.Write), newKey("rcr_other", "other", project.Read),
			newKey("rca_other", "other", project.Admin), newKey("rcw_shut", "shut", project.Write), newKey("rcr_shut", "shut", project.Read),
			newKey("rca_shut", "shut", project.Admin), expired, revoked,
		})
	withStore(t, f)
	scopes := map[string]project.Scope{"rcw": project.Write, "rcr": project.Read, "rca": project.Admin}
	seen := map[string]bool{}
	for _, r := range f.engine.Routes() {
		route := r.Method + " " + r.Path
		if r.Method == "OPTIONS" {
			continue // a preflight carries no key and answers nothing but headers
		}
		if r.Method == "HEAD" && !open[route] {
			route = "GET " + r.Path
		}
		seen[route] = true
		need, keyed := needs[route]
		if keyed == open[route] {
			t.Errorf("%s is in neither of needs and open, or in both", route)
			continue
		}
		if !keyed {
			continue
		}
		for _, key := range []string{
			"", "rcw_unknown", strings.Repeat("x", 4000), "rca_expired", "rca_revoked", "rca_root", "rcw_demo", "rcr_demo", "rca_demo",
			"rcw_other", "rcr_other", "rca_other", "rcw_shut", "rcr_shut", "rca_shut",
		} {
			// The request is about demo. Where the project stands in the path, there; elsewhere in the query.
			path := strings.NewReplacer(":project", "demo", ":key", "rcw_demo").Replace(r.Path)
			if !strings.Contains(r.Path, ":project") && need != root {
				path += "?project=demo"
			}
			scope, of, _ := strings.Cut(key, "_")
			may := false
			switch have := scopes[scope]; {
			case key == "" || of == "unknown" || of == "expired" || of == "revoked" || len(key) > 100:
			case need == root:
				may = key == "rca_root"
			case route == "GET /v1/projects": // answers for the key's own project
				may = have == project.Admin
			default:
				may = (of == "root" || of == "demo") && (have == need || have == project.Admin)
			}
			f.rooms.body, f.rooms.counts.Project, f.rooms.asked.Project = "", "", ""
			w := f.do(r.Method, path, `{}`, "Authorization", "Bearer "+key)
			refused := w.Code == http.StatusUnauthorized || w.Code == http.StatusForbidden
			if refused == may {
				t.Errorf("%s with %.20q: %d %s; may use it: %v", route, key, w.Code, w.Body, may)
			}
			if reached := f.rooms.asked.Project + f.rooms.counts.Project; !may && reached != "" {
				t.Errorf("%s with %.20q reached project %s", route, key, reached)
			}
		}
	}
	for route := range needs {
		if !seen[route] {
			t.Errorf("there is no route %s", route)
		}
	}
}

// Through the API, an admin of one project sees and changes nothing of another.
func TestProjectAdminsStayInTheirProject(t *testing.T) {
	f := withStore(t, setUp(t, slog.LevelInfo, "demo"))
	type key struct{ ID, Key, State string }
	made := func(path, body, auth string) (k key) {
		t.Helper()
		w := f.do("POST", path, body, "Authorization", "Bearer "+auth)
		if w.Code != http.StatusCreated || json.Unmarshal(w.Body.Bytes(), &k) != nil {
			t.Fatalf("POST %s: %d %s", path, w.Code, w.Body)
		}
		return k
	}
	made("/v1/projects", `{"id":"a"}`, "rca_root")
	made("/v1/projects", `{"id":"b","zone":"Asia/Tokyo"}`, "rca_root")
	admin := made("/v1/projects/a/keys", `{"scope":"admin"}`, "rca_root")
	ofB := made("/v1/projects/b/keys", `{"scope":"write","name":"web"}`, "rca_root")
	do := func(method, path, body string) (int, string) {
		w := f.do(method, path, body, "Authorization", "Bearer "+admin.Key)
		return w.Code, w.Body.String()
	}
	for _, x := range []struct {
		method, path, body string
		want               int
	}{
		{"GET", "/v1/projects/b", "", 403},
		{"GET", "/v1/projects/b/keys", "", 403},
		{"PATCH", "/v1/projects/b", `{"closed":true}`, 403},
		{"DELETE", "/v1/projects/b/keys/" + ofB.ID, "", 403},
		{"DELETE", "/v1/projects/a/keys/" + ofB.ID, "", 404},
		{"POST", "/v1/projects/a/keys/" + ofB.ID + "/rotate", "", 404},
		{"DELETE", "/v1/projects/a/keys/" + ofB.ID + "?project=b", "", 404},
		{"POST", "/v1/projects", `{"id":"c"}`, 403},
		{"POST", "/v1/keys", `{"scope":"admin"}`, 403},
		{"GET", "/v1/counts?event=x&project=b", "", 403},
		{"POST", "/v1/events?project=b", `{"event":"x"}`, 403},
		{"PATCH", "/v1/projects/a", `{"anonymous":"daily"}`, 200},
		{"PATCH", "/v1/projects/a", `{"zone":"Asia/Tokyo"}`, 409},
		{"PATCH", "/v1/projects/a", `{"anonymos":"daily"}`, 400},
		{"PATCH", "/v1/projects/a", `{"key_rate":"often"}`, 422},
	} {
		if code, body := do(x.method, x.path, x.body); code != x.want {
			t.Errorf("%s %s %s: %d %s; want %d", x.method, x.path, x.body, code, body, x.want)
		}
	}
	if _, body := do("GET", "/v1/projects", ""); strings.Contains(body, `"id":"b"`) || !strings.Contains(body, `"id":"a"`) || !strings.Contains(body, `"anonymous":"daily"`) {
		t.Errorf("projects of a's admin: %s", body)
	}
	if _, body := do("GET", "/v1/projects/a/keys", ""); strings.Contains(body, ofB.ID) || !strings.Contains(body, admin.ID) || strings.Contains(body, admin.Key) {
		t.Errorf("keys of a: %s; want its own, and no secret", body)
	}
	if w := f.do("POST", "/v1/events", `{"event":"x"}`, "Authorization", "Bearer "+ofB.Key); w.Code != 202 || f.rooms.asked.Project != "b" {
		t.Errorf("b's key: %d %s for project %s", w.Code, w.Body, f.rooms.asked.Project)
	}
}
