package assets

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// limit of what a page has to load, in bytes.
const limit = 2048

func TestScriptIsSmall(t *testing.T) {
	n := len(compress(script))
	t.Logf("%d bytes, %d gzipped", len(script), n)
	if n > limit {
		t.Errorf("rollcall.js has %d bytes gzipped; want at most %d", n, limit)
	}
}

// The committed script is what go generate makes of the source.
func TestScriptIsFresh(t *testing.T) {
	source, err := os.ReadFile("assets.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(source), "\n//go:generate ")
	line, _, _ := strings.Cut(rest, "\n")
	line, to, _ := strings.Cut(line, " --outfile=")
	if !ok || to != "rollcall.js" {
		t.Fatalf("go:generate is %q, which writes %q; want rollcall.js", line, to)
	}
	words := strings.Fields(line)
	var errs bytes.Buffer
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, &errs)
	}
	if !bytes.Equal(out, script) {
		t.Error("rollcall.js is not what src/rollcall.js gives: run go generate ./web/assets")
	}
}

func ask(method string, header ...string) *http.Response {
	r := httptest.NewRequest(method, "/rollcall.js", nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	Script().ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r io.Reader) []byte {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestScriptIsServed(t *testing.T) {
	res := ask("GET")
	if got := body(t, res.Body); res.StatusCode != 200 || !bytes.Equal(got, script) {
		t.Errorf("GET = %d, %d bytes; want 200 and the script", res.StatusCode, len(got))
	}
	for name, want := range map[string]string{
		"Content-Type":                 "text/javascript; charset=utf-8",
		"Cache-Control":                "public, max-age=3600",
		"Vary":                         "Accept-Encoding",
		"Access-Control-Allow-Origin":  "*",
		"Cross-Origin-Resource-Policy": "cross-origin",
		"X-Content-Type-Options":       "nosniff",
	} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s: %q; want %q", name, got, want)
		}
	}
	tag := res.Header.Get("Etag")
	version, _, _ := strings.Cut(strings.Trim(tag, `"`), "-")
	if version == "" || !bytes.Contains(script, []byte(`"`+version+`"`)) {
		t.Errorf("ETag %s does not begin with a version that stands in the script", tag)
	}

	res = ask("HEAD")
	if got := body(t, res.Body); res.StatusCode != 200 || len(got) != 0 || res.Header.Get("Etag") != tag {
		t.Errorf("HEAD = %d with %d bytes and ETag %s; want 200, none and %s", res.StatusCode, len(got), res.Header.Get("Etag"), tag)
	}
	for given, want := range map[string]int{tag: 304, "W/" + tag: 304, `"x", ` + tag: 304, "*": 304, `"x"`: 200} {
		res := ask("GET", "If-None-Match", given)
		if got := body(t, res.Body); res.StatusCode != want || (want == 304) != (len(got) == 0) {
			t.Errorf("If-None-Match %s = %d with %d bytes; want %d", given, res.StatusCode, len(got), want)
		}
	}
}

func TestScriptIsCompressed(t *testing.T) {
	plain := ask("GET").Header.Get("Etag")
	for accept, want := range map[string]bool{
		"gzip": true, "br, GZIP;q=0.5": true, "gzip ; q=1.0": true, "deflate,gzip": true,
		"": false, "br": false, "gzip;q=0": false, "gzip;q=0.000": false, "gzip;q=x": false, "xgzip": false, "identity": false,
	} {
		res := ask("GET", "Accept-Encoding", accept)
		got := body(t, res.Body)
		if is := res.Header.Get("Content-Encoding") == "gzip"; is != want || is == (res.Header.Get("Etag") == plain) {
			t.Errorf("%q: encoding %q, ETag %s; want gzip: %v", accept, res.Header.Get("Content-Encoding"), res.Header.Get("Etag"), want)
			continue
		}
		if want {
			if len(got) > limit {
				t.Errorf("%d bytes were sent; want at most %d", len(got), limit)
			}
			z, err := gzip.NewReader(bytes.NewReader(got))
			if err != nil {
				t.Fatal(err)
			}
			got = body(t, z)
		}
		if !bytes.Equal(got, script) {
			t.Errorf("%q: not the script", accept)
		}
	}
	tag := ask("GET", "Accept-Encoding", "gzip").Header.Get("Etag")
	if res := ask("GET", "Accept-Encoding", "gzip", "If-None-Match", tag); res.StatusCode != 304 {
		t.Errorf("the compressed script's own ETag: %d; want 304", res.StatusCode)
	}
}
