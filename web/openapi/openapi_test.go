package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// decoded is the document as JSON has it.
func decoded(t *testing.T) map[string]any {
	t.Helper()
	var d any
	if err := yaml.Unmarshal(source, &d); err != nil {
		t.Fatal(err)
	}
	return asJSON(t, d).(map[string]any)
}

func asJSON(t *testing.T, v any) any {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if v, err = jsonschema.UnmarshalJSON(bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
	return v
}

// The official schema of OpenAPI 3.1 (testdata/README.md) looks at all but the schemas in the document; the test below looks at those.
func TestDocumentIsOpenAPI31(t *testing.T) {
	file, err := os.Open("testdata/openapi-3.1.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	schema, err := jsonschema.UnmarshalJSON(file)
	if err != nil {
		t.Fatal(err)
	}
	const at = "https://spec.openapis.org/oas/3.1/schema/2026-08-03"
	c := jsonschema.NewCompiler()
	if err := c.AddResource(at, schema); err != nil {
		t.Fatal(err)
	}
	official, err := c.Compile(at)
	if err != nil {
		t.Fatal(err)
	}
	d := decoded(t)
	if err := official.Validate(d); err != nil {
		t.Error(err)
	}
	d["paths"].(map[string]any)["/healthz"].(map[string]any)["get"].(map[string]any)["respones"] = map[string]any{}
	if official.Validate(d) == nil {
		t.Error("a misspelt member passes: the schema says nothing")
	}
}

// walk visits every node of a document, with its JSON pointer.
func walk(n any, at string, visit func(at string, n map[string]any)) {
	switch n := n.(type) {
	case map[string]any:
		visit(at, n)
		for _, name := range slices.Sorted(maps.Keys(n)) {
			walk(n[name], at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name), visit)
		}
	case []any:
		for i := range n {
			walk(n[i], fmt.Sprint(at, "/", i), visit)
		}
	}
}

// find follows the references of a node.
func find(t *testing.T, root map[string]any, n map[string]any) map[string]any {
	t.Helper()
	ref, ok := n["$ref"].(string)
	if !ok {
		return n
	}
	var to any = root
	for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		to = to.(map[string]any)[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]
	}
	if to == nil {
		t.Fatalf("%s names nothing", ref)
	}
	return find(t, root, to.(map[string]any))
}

// Every schema is one of JSON Schema 2020-12, and every example keeps to the schema beside it, unless it is meant to be refused.
func TestSchemasAndExamples(t *testing.T) {
	d := decoded(t)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("api.json", d); err != nil {
		t.Fatal(err)
	}
	schemas, examples, refs := 0, 0, map[string]bool{}
	check := func(s *jsonschema.Schema, at string, e any) {
		examples++
		if err := s.Validate(e); err != nil {
			t.Errorf("%s: %v", at, err)
		}
	}
	walk(d, "", func(at string, n map[string]any) {
		if ref, ok := n["$ref"].(string); ok {
			refs[strings.TrimPrefix(ref, "#")] = true
			find(t, d, n)
		}
		if strings.Contains(at, "/examples/") || strings.HasSuffix(at, "/example") || n["schema"] == nil {
			return
		}
		s, err := c.Compile("api.json#" + at + "/schema")
		if err != nil {
			t.Errorf("%s: %v", at, err)
			return
		}
		schemas++
		if e, ok := n["example"]; ok {
			check(s, at, e)
		}
		if list, ok := n["examples"].(map[string]any); ok {
			for name, e := range list {
				e := find(t, d, e.(map[string]any))
				if e["x-status"] == nil {
					check(s, at+" "+name, e["value"])
				}
			}
		}
	})
	if schemas < 100 || examples < 75 {
		t.Errorf("%d schemas, %d examples: too few to be all", schemas, examples)
	}
	for kind, list := range d["components"].(map[string]any) {
		for name := range list.(map[string]any) {
			at := "/components/" + kind + "/" + name
			if kind == "securitySchemes" {
				continue // named otherwise
			}
			if !refs[at] {
				t.Errorf("nothing refers to %s", at)
			}
			if _, err := c.Compile("api.json#" + at); kind == "schemas" && err != nil {
				t.Error(err)
			}
		}
	}
}

// What an answer says about codes is true of the table of codes.
func TestAnswersNameCodesOfTheirStatus(t *testing.T) {
	d, err := parse(source)
	if err != nil {
		t.Fatal(err)
	}
	status := map[string]int{"too_frequent": 429}
	for _, e := range d.Components.Schemas {
		if e.Name == "ProblemCode" {
			for _, s := range e.Value.OneOf {
				status[s.Const.Value] = s.Status
			}
		}
	}
	named := map[string]bool{"url_unknown": true, "method_not_allowed": true} // of URLs that are not here
	for _, p := range d.Paths {
		for _, o := range []*operation{p.Value.Get, p.Value.Post, p.Value.Put, p.Value.Patch, p.Value.Delete} {
			if o == nil {
				continue
			}
			for _, r := range o.Responses {
				n := 0
				for _, s := range spans(r.Value.Description) {
					if want := status[s.Text]; s.Code && want != 0 {
						named[s.Text] = true
						if n++; fmt.Sprint(want) != r.Name {
							t.Errorf("%s: %s is named under %s; it is %d", o.ID, s.Text, r.Name, want)
						}
					}
				}
				if n == 0 && r.Name >= "400" && strings.HasPrefix(p.Name, "/v1/") {
					t.Errorf("%s: %s names no code", o.ID, r.Name)
				}
			}
		}
	}
	for code := range status {
		if !named[code] {
			t.Errorf("no answer names %s", code)
		}
	}
}
