package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// object is a node of the document.
type object = map[string]any

// apiDocument is the document that a server hands out. Its conventions stand at its head.
type apiDocument struct {
	t          *testing.T
	root       object
	operations []operation // in the document's order
	schemas    *jsonschema.Compiler
}

// operation is a method of a path.
type operation struct {
	object
	at           string // JSON pointer
	method, path string
	parameters   []object
}

// pointer escapes a step of a JSON pointer.
func pointer(steps ...string) (at string) {
	for _, s := range steps {
		at += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(s)
	}
	return at
}

// readDocument gets the document from a server.
func readDocument(t *testing.T, s *server) *apiDocument {
	t.Helper()
	source := []byte(s.get("/openapi.yaml"))
	var decoded any
	if err := yaml.Unmarshal(source, &decoded); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(decoded)
	if err != nil {
		t.Fatal(err)
	}
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	d := &apiDocument{t: t, root: root.(object)}
	var ordered struct{ Paths yaml.Node }
	if err := yaml.Unmarshal(source, &ordered); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(ordered.Paths.Content); i += 2 {
		path, item := ordered.Paths.Content[i].Value, ordered.Paths.Content[i+1]
		common, _ := d.root["paths"].(object)[path].(object)["parameters"].([]any)
		for k := 0; k < len(item.Content); k += 2 {
			if method := item.Content[k].Value; method != "parameters" {
				o := operation{at: pointer("paths", path, method), method: strings.ToUpper(method), path: path}
				o.object = d.root["paths"].(object)[path].(object)[method].(object)
				own, _ := o.object["parameters"].([]any)
				for _, p := range slices.Concat(common, own) {
					_, p := d.find(p.(object), "")
					o.parameters = append(o.parameters, p)
				}
				d.operations = append(d.operations, o)
			}
		}
	}
	if len(d.operations) < 30 {
		t.Fatalf("%d operations: too few to be all", len(d.operations))
	}
	d.close(d.root)
	d.schemas = jsonschema.NewCompiler()
	d.schemas.AssertFormat()
	if err := d.schemas.AddResource("api.json", d.root); err != nil {
		t.Fatal(err)
	}
	return d
}

// close forbids, in this test's copy, members that a schema does not name: an answer must have none that nobody wrote down.
func (d *apiDocument) close(n any) {
	switch n := n.(type) {
	case object:
		_, described := n["properties"].(object)
		if _, open := n["additionalProperties"]; described && !open && n["$ref"] == nil {
			n["additionalProperties"] = false
		}
		for _, v := range n {
			d.close(v)
		}
	case []any:
		for _, v := range n {
			d.close(v)
		}
	}
}

// find follows the reference of a node at a place, and returns where it leads.
func (d *apiDocument) find(n object, at string) (string, object) {
	d.t.Helper()
	ref, ok := n["$ref"].(string)
	if !ok {
		return at, n
	}
	at = strings.TrimPrefix(ref, "#")
	var to any = d.root
	for step := range strings.SplitSeq(at[1:], "/") {
		to = to.(object)[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]
	}
	return d.find(to.(object), at)
}

// member is an object in an object, empty if there is none.
func member(n object, name string) object {
	m, _ := n[name].(object)
	return m
}

// status is what an example is meant to get, 0 = success.
func status(example object) int {
	n, _ := example["x-status"].(json.Number)
	v, _ := n.Int64()
	return int(v)
}

// fields are the headers that an answer has only if the document says so.
var fields = []string{
	"Retry-After", "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset", "X-Request-Id", "X-Rollcall-Code", "Www-Authenticate", "Etag",
	"Content-Security-Policy",
}

// check holds an answer against the document. want is its status, 0 = any below 300.
func (d *apiDocument) check(what string, o operation, want, got int, header http.Header, body []byte) {
	d.t.Helper()
	fault := func(format string, a ...any) {
		d.t.Helper()
		d.t.Errorf("%s %s, %s: %s\n%d %v\n%.500s", o.method, o.path, what, fmt.Sprintf(format, a...), got, header, body)
	}
	if want != got && (want != 0 || got >= 300) {
		fault("want status %d (0 = success)", want)
	}
	entry := member(member(o.object, "responses"), fmt.Sprint(got))
	if len(entry) == 0 {
		fault("the status is not documented")
		return
	}
	at, response := d.find(entry, o.at+pointer("responses", fmt.Sprint(got)))
	d.headers(fault, at, response, header)
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	media, documented := member(response, "content")[kind].(object)
	if !documented {
		fault("the content type is not documented")
		return
	}
	if !strings.HasSuffix(kind, "json") {
		return
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		fault("%v", err)
		return
	}
	if media["schema"] == nil {
		fault("JSON without a schema")
		return
	}
	schema, err := d.schemas.Compile("api.json#" + at + pointer("content", kind, "schema"))
	if err != nil {
		fault("%v", err)
		return
	}
	if err := schema.Validate(value); err != nil {
		fault("%v", err)
	}
	if kind == "application/problem+json" {
		description, _ := entry["description"].(string)
		if description == "" {
			description, _ = response["description"].(string)
		}
		if code := value.(object)["code"].(string); !strings.Contains(description, "`"+code+"`") {
			fault("the description of this answer does not name its code: %q", description)
		}
	}
}

func (d *apiDocument) headers(fault func(string, ...any), at string, response object, header http.Header) {
	documented := map[string]bool{}
	for name, h := range member(response, "headers") {
		place, h := d.find(h.(object), at+pointer("headers", name))
		name = http.CanonicalHeaderKey(name)
		documented[name] = true
		value, is := header[name]
		if !is {
			if h["required"] == true {
				fault("the header %s is missing", name)
			}
			continue
		}
		schema, err := d.schemas.Compile("api.json#" + place + "/schema")
		if err == nil {
			err = schema.Validate(value[0])
		}
		if err != nil {
			fault("%s: %v", name, err)
		}
	}
	for _, name := range fields {
		if header[name] != nil && !documented[name] {
			fault("the header %s is not documented", name)
		}
	}
}
