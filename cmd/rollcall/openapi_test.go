package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// madeKey makes a key that an example may change, and returns its id: one of the project in the path, or of all.
func (s *server) madeKey(path string) string {
	s.t.Helper()
	at, body := "/v1/keys", `{"scope":"admin","name":"for an example"}`
	if strings.Contains(path, "/projects/") {
		at, body = "/v1/projects/shop/keys", `{"scope":"write","name":"for an example"}`
	}
	r, err := http.NewRequest("POST", s.url+at, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.key(adminName))
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	var k struct{ ID string }
	if err := json.NewDecoder(res.Body).Decode(&k); err != nil || k.ID == "" {
		s.t.Fatalf("making a key: %d %v", res.StatusCode, err)
	}
	return k.ID
}

// Every line for the shell runs as it stands in the document, through a real curl.
func TestEveryCurlOfTheDocumentRuns(t *testing.T) {
	s := start(t, t.TempDir())
	d := readDocument(t, s)
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Fatal(err)
	}
	// Another curl goes before it, which also keeps the header of the answer.
	bin, work := t.TempDir(), t.TempDir()
	head := filepath.Join(bin, "head")
	if err := os.WriteFile(filepath.Join(bin, "curl"), []byte("#!/bin/sh\nexec "+curl+" -D "+head+` "$@"`+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	samples := 0
	for _, o := range d.operations {
		list, _ := o.object["x-codeSamples"].([]any)
		if len(list) == 0 && o.object["x-same-as"] == nil && !strings.HasPrefix(o.path, "/v1/") {
			t.Errorf("%s %s has no line for the shell", o.method, o.path)
		}
		for _, sample := range list {
			sample := sample.(object)
			source := sample["source"].(string)
			samples++
			cmd := exec.Command("sh", "-c", source)
			cmd.Dir = work
			cmd.Env = append(cleanEnv(), "PATH="+bin+":"+os.Getenv("PATH"), "URL="+s.url,
				"WRITE_KEY="+s.key(writeName), "READ_KEY="+s.key(readName), "ADMIN_KEY="+s.key(adminName))
			if strings.Contains(source, "KEY_ID") {
				cmd.Env = append(cmd.Env, "KEY_ID="+s.madeKey(o.path))
			}
			var errs bytes.Buffer
			cmd.Stderr = &errs
			out, err := cmd.Output()
			if err != nil || errs.Len() > 0 {
				t.Errorf("%s: %v %s", source, err, &errs)
				continue
			}
			got, header := readHead(t, head)
			d.check(sample["label"].(string), o, status(sample), got, header, out)
		}
	}
	if samples < 30 {
		t.Errorf("%d lines for the shell: too few to be all", samples)
	}
	s.stop()
}

// readHead reads what curl -D wrote.
func readHead(t *testing.T, file string) (status int, header http.Header) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := textproto.NewReader(bufio.NewReader(f))
	line, err := r.ReadLine()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(line, "HTTP/1.1 %d", &status); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	mime, err := r.ReadMIMEHeader()
	if err != nil {
		t.Fatal(err)
	}
	return status, http.Header(mime)
}

// exchange is one request that the examples of an operation give.
type exchange struct {
	what       string
	status     int // wanted, 0 = success
	scheme     string
	key        string
	parameters []object
	value      map[string]any // of parameters by name, instead of their example
	kind       string         // content type
	body       []byte
}

// Every example of a body and of a parameter is sent, with each way to send a key; and without a key, and with one of another scope.
func TestEveryExampleOfTheDocumentRuns(t *testing.T) {
	s := start(t, t.TempDir())
	d := readDocument(t, s)
	for _, o := range d.operations {
		for _, r := range d.requests(s, o) {
			req := d.request(s, o, r)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			d.check(r.what, o, r.status, res.StatusCode, res.Header, body)
		}
	}
	s.stop()
}

// requests lists what is sent for an operation.
func (d *apiDocument) requests(s *server, o operation) (list []exchange) {
	good := exchange{what: "as it is"}
	for _, p := range o.parameters {
		if p["required"] == true {
			good.parameters = append(good.parameters, p)
		}
	}
	scheme, role := "", ""
	security := o.object["security"].([]any)
	if len(security) > 0 {
		scheme, role = way(security[0])
	}
	keys := map[string]string{"write": s.key(writeName), "read": s.key(readName), "admin": s.key(adminName), "root": s.key(adminName)}
	good.scheme, good.key = scheme, keys[role]
	bodies := d.bodies(o, good)
	list = append(list, bodies...)
	good = list[slices.IndexFunc(list, func(r exchange) bool { return r.status == 0 })]

	changes := o.method != "GET" && (strings.HasPrefix(o.path, "/v1/projects") || strings.HasPrefix(o.path, "/v1/keys"))
	for _, w := range security {
		if scheme, _ := way(w); !changes {
			r := good
			r.what, r.scheme = "the key by "+scheme, scheme
			list = append(list, r)
		}
	}
	if role != "" {
		none, other := good, good
		none.what, none.status, none.scheme = "without a key", 401, ""
		other.what, other.status, other.key = "with a key of another scope", 403, keys["write"]
		if role == "write" {
			other.key = keys["read"]
		}
		list = append(list, none, other)
	}
	for _, p := range o.parameters {
		if p["required"] == true {
			continue
		}
		for name, e := range examplesOf(p) {
			r := good
			r.what, r.status = fmt.Sprint(p["name"], " ", name), status(p)
			r.parameters = append(slices.Clip(r.parameters), p)
			r.value = map[string]any{p["name"].(string): e}
			if scope, ok := p["x-scope"].(string); ok {
				r.key = keys[scope]
			}
			with, _ := p["x-with"].([]any)
			for _, q := range o.parameters {
				if slices.Contains(with, q["name"]) {
					r.parameters = append(r.parameters, q)
				}
			}
			list = append(list, r)
		}
	}
	return list
}

// way is a scheme and the scope that it takes.
func way(requirement any) (scheme, role string) {
	for scheme, roles := range requirement.(object) {
		return scheme, roles.([]any)[0].(string)
	}
	return "", ""
}

// bodies are good with each example of a body; as it is, if it need not have one.
func (d *apiDocument) bodies(o operation, good exchange) (list []exchange) {
	if same, ok := o.object["x-same-as"].(string); ok {
		for _, other := range d.operations {
			if other.object["operationId"] == same {
				return d.bodies(other, good)
			}
		}
		d.t.Errorf("%s: nothing is called %s", o.path, same)
	}
	request := member(o.object, "requestBody")
	if request["required"] != true {
		list = append(list, good)
	}
	for kind, media := range member(request, "content") {
		for name, e := range member(media.(object), "examples") {
			_, e := d.find(e.(object), "")
			r := good
			r.what, r.status, r.kind = name, status(e), kind
			if text, ok := e["value"].(string); ok {
				r.body = []byte(text)
			} else if b, err := json.Marshal(e["value"]); err == nil {
				r.body = b
			}
			list = append(list, r)
		}
	}
	return list
}

// examplesOf are the examples of a parameter by name.
func examplesOf(p object) map[string]any {
	list := map[string]any{}
	if e, ok := p["example"]; ok {
		list[""] = e
	}
	for name, e := range member(p, "examples") {
		list[name] = e.(object)["value"]
	}
	return list
}

// request makes a request of what stands in the document.
func (d *apiDocument) request(s *server, o operation, r exchange) *http.Request {
	d.t.Helper()
	path, query, header := o.path, url.Values{}, http.Header{}
	for _, p := range r.parameters {
		name := p["name"].(string)
		value := p["example"]
		if v, ok := r.value[name]; ok {
			value = v
		}
		switch p["in"] {
		case "path":
			if name == "key" {
				value = s.madeKey(o.path)
			}
			path = strings.ReplaceAll(path, "{"+name+"}", fmt.Sprint(value))
		case "header":
			header.Set(name, fmt.Sprint(value))
		case "query":
			parts, several := value.(object)
			if !several {
				parts = object{name: value}
			}
			for name, v := range parts {
				query.Set(name, fmt.Sprint(v))
			}
		}
	}
	if r.scheme == "query" {
		query.Set("key", r.key)
	}
	body := r.body
	switch header.Get("Content-Encoding") {
	case "gzip":
		body = []byte(zip(d.t, string(body)))
	case "zstd":
		w, err := zstd.NewWriter(nil)
		if err != nil {
			d.t.Fatal(err)
		}
		body = w.EncodeAll(body, nil)
	}
	req, err := http.NewRequest(o.method, s.url+path+"?"+query.Encode(), bytes.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header = header
	if r.kind != "" {
		header.Set("Content-Type", r.kind)
	}
	switch r.scheme {
	case "bearer":
		header.Set("Authorization", "Bearer "+r.key)
	case "basic":
		req.SetBasicAuth(r.key, "anything")
	}
	return req
}
