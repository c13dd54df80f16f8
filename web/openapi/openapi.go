// Package openapi hands out what the API is: openapi.yaml as it is, for programs, and as a page for people. The page is made of the
// document when the program starts, so the two can't differ.
package openapi

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"net/http"
	"time"
)

//go:embed openapi.yaml
var source []byte

// Document answers GET and HEAD of /openapi.yaml.
func Document() http.Handler { return serve(source, "application/yaml", nil) }

// Page answers GET and HEAD of /docs.
func Page() http.Handler {
	page, err := render(source)
	if err != nil {
		panic("openapi: " + err.Error()) // part of the program, and tested
	}
	// The page loads nothing, runs nothing, and can't be framed; its own style is known by its hash.
	sum := sha256.Sum256([]byte(style))
	policy := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	return serve(page, "text/html; charset=utf-8", map[string]string{
		"Content-Security-Policy": policy,
		"Referrer-Policy":         "no-referrer",
	})
}

// serve answers with a file that changes with the program alone.
func serve(body []byte, contentType string, header map[string]string) http.Handler {
	sum := sha256.Sum256(body)
	tag := fmt.Sprintf(`"%x"`, sum[:8])
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for name, value := range header {
			h.Set(name, value)
		}
		h.Set("Content-Type", contentType)
		h.Set("Etag", tag)
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Content-Type-Options", "nosniff")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	})
}
