package web

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/rollcall/rollcall/internal/project"
)

// Every route is in the document and nothing else is, with the scope that it takes (access_test.go). HEAD of a GET route and OPTIONS of a
// beacon follow from those.
func TestTheDocumentHasEveryRoute(t *testing.T) {
	f := withStore(t, setUp(t, slog.LevelInfo, "demo"))
	w := f.do("GET", "/openapi.yaml", "")
	var d struct {
		Paths map[string]map[string]yaml.Node
	}
	if err := yaml.Unmarshal(w.Body.Bytes(), &d); err != nil || w.Code != 200 {
		t.Fatal(w.Code, err)
	}
	roles := map[project.Scope]string{project.Write: "write", project.Read: "read", project.Admin: "admin", root: "root"}
	documented := map[string]bool{}
	for path, item := range d.Paths {
		for method, node := range item {
			if method == "parameters" {
				continue
			}
			path := strings.NewReplacer("{", ":", "}", "").Replace(path)
			route := strings.ToUpper(method) + " " + path
			documented[route] = true
			var o struct{ Security []map[string][]string }
			if err := node.Decode(&o); err != nil {
				t.Fatal(err)
			}
			want, ways := roles[needs[route]], 3
			if open[route] {
				want, ways = "", 0
			}
			if len(o.Security) != ways {
				t.Errorf("%s: security %v; want %d ways to send a key", route, o.Security, ways)
			}
			for _, way := range o.Security {
				for scheme, role := range way {
					if !slices.Equal(role, []string{want}) {
						t.Errorf("%s: %s with %v; want %s", route, scheme, role, want)
					}
				}
			}
		}
	}
	routed := map[string]bool{}
	for _, r := range f.engine.Routes() {
		route := r.Method + " " + r.Path
		routed[route] = true
		of := map[string]string{"HEAD": "GET " + r.Path, "OPTIONS": ""}
		if other, follows := of[r.Method]; follows && (other == "" || documented[other]) {
			continue
		}
		if !documented[route] {
			t.Errorf("openapi.yaml has nothing on %s", route)
		}
	}
	for route := range documented {
		if !routed[route] {
			t.Errorf("openapi.yaml has %s, the router has not", route)
		}
	}
}
