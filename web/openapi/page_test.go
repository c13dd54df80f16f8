package openapi

import (
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func get(t *testing.T, h http.Handler, method string, header ...string) (*http.Response, string) {
	t.Helper()
	r := httptest.NewRequest(method, "/", nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Result(), string(body)
}

// The page needs nothing from outside, and its policy lets nothing in.
func TestPageIsSelfContained(t *testing.T) {
	res, html := get(t, Page(), "GET")
	for _, bad := range []string{"<script", "<link", "<img", "<iframe", "@import", "url(", "ZgotmplZ", "<no value>"} {
		if i := strings.Index(html, bad); i >= 0 {
			t.Errorf("the page has %q: %.120q", bad, html[max(0, i-40):])
		}
	}
	if m := regexp.MustCompile(`<[^>]*\s(src|style|on[a-z]+)=`).FindString(html); m != "" {
		t.Errorf("the page has %q", m)
	}
	_, rest, _ := strings.Cut(html, "<style>")
	css, _, ok := strings.Cut(rest, "</style>")
	sum := sha256.Sum256([]byte(css))
	policy := res.Header.Get("Content-Security-Policy")
	if want := "style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !ok || !strings.Contains(policy, want) || !strings.HasPrefix(policy, "default-src 'none'") {
		t.Errorf("policy %q; want default-src 'none' and %s", policy, want)
	}
}

// Every link of the page leads to a place on it, and no place is there twice.
func TestPageLinks(t *testing.T) {
	_, html := get(t, Page(), "GET")
	places := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(html, -1) {
		if places[m[1]] {
			t.Errorf("#%s is there twice", m[1])
		}
		places[m[1]] = true
	}
	links := regexp.MustCompile(` href="([^"]*)"`).FindAllStringSubmatch(html, -1)
	for _, m := range links {
		if place, ok := strings.CutPrefix(m[1], "#"); ok && !places[place] || !ok && m[1] != "/openapi.yaml" {
			t.Errorf("the link %s leads nowhere", m[1])
		}
	}
	d, err := parse(source)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Paths {
		for _, o := range []*operation{p.Value.Get, p.Value.Post, p.Value.Put, p.Value.Patch, p.Value.Delete} {
			if o != nil && !places[o.ID] {
				t.Errorf("%s of %s is not on the page", o.ID, p.Name)
			}
		}
	}
	for _, e := range d.Components.Schemas {
		if !places["schema-"+e.Name] && e.Name != "RejectionCode" && e.Name != "ProblemCode" {
			t.Errorf("schema %s is not on the page", e.Name)
		}
	}
}

func TestCaching(t *testing.T) {
	for name, h := range map[string]http.Handler{"application/yaml": Document(), "text/html; charset=utf-8": Page()} {
		res, body := get(t, h, "GET")
		if res.StatusCode != 200 || res.Header.Get("Content-Type") != name || body == "" {
			t.Errorf("%s: %d %v", name, res.StatusCode, res.Header)
		}
		if res, body := get(t, h, "GET", "If-None-Match", res.Header.Get("Etag")); res.StatusCode != 304 || body != "" {
			t.Errorf("%s again: %d", name, res.StatusCode)
		}
		if res, body := get(t, h, "HEAD"); res.StatusCode != 200 || body != "" {
			t.Errorf("HEAD of %s: %d, %d bytes", name, res.StatusCode, len(body))
		}
	}
}

func TestText(t *testing.T) {
	b := blocks("One `a`\nline, [there](#x) and [not]( there.\n\n## A place\n- one\n- two\n\n| a | b |\n|---|---|\n| `c|d` | |\n```\n<x>\n\ny\n```\nend")
	if len(b) != 6 || len(b[0].Text) != 5 || !b[0].Text[1].Code || b[0].Text[3].Link != "#x" || b[1].ID != "a-place" || len(b[2].List) != 2 ||
		len(b[3].Table) != 2 || len(b[3].Table[1]) != 2 || b[4].Code != "<x>\n\ny" || b[5].Text[0].Text != "end" {
		t.Errorf("%+v", b)
	}
}
