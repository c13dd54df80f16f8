// Package assets hands out what pages load: files that are built into the program.
package assets

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// script is src/rollcall.js without comments and long names.
//
//go:generate go tool esbuild src/rollcall.js --minify --target=es2019 --outfile=rollcall.js
//go:embed rollcall.js
var script []byte

// versionOf finds the script's own version, which pages see as rollcall.version.
var versionOf = regexp.MustCompile(`"(\d+\.\d+\.\d+)"`)

// file is one form of a file: as it is, or compressed.
type file struct {
	body []byte
	tag  string // ETag
}

// Script answers GET and HEAD of /rollcall.js. Any page may load it.
func Script() http.Handler {
	plain := file{body: script}
	packed := file{body: compress(script)}
	version := versionOf.FindSubmatch(script)
	if version == nil {
		panic("assets: rollcall.js has no version")
	}
	sum := sha256.Sum256(script)
	plain.tag = fmt.Sprintf(`"%s-%x"`, version[1], sum[:8])
	packed.tag = fmt.Sprintf(`"%s-%x-gzip"`, version[1], sum[:8])

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		f := plain
		if takesGzip(r.Header.Values("Accept-Encoding")) {
			f = packed
			h.Set("Content-Encoding", "gzip")
			h.Set("Content-Length", strconv.Itoa(len(f.body))) // ServeContent leaves it out of an encoded answer
		}
		h.Set("Content-Type", "text/javascript; charset=utf-8")
		h.Set("Etag", f.tag)
		h.Set("Cache-Control", "public, max-age=3600")
		h.Set("Vary", "Accept-Encoding")
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Cross-Origin-Resource-Policy", "cross-origin")
		h.Set("X-Content-Type-Options", "nosniff")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.body))
	})
}

// compress is gzip at its best level.
func compress(b []byte) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(b)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err) // memory takes everything
	}
	return out.Bytes()
}

// takesGzip tells whether a client has named gzip and has not refused it.
func takesGzip(accepted []string) bool {
	for _, list := range accepted {
		for part := range strings.SplitSeq(list, ",") {
			coding, weight, weighted := strings.Cut(part, ";")
			if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
				continue
			}
			if !weighted {
				return true
			}
			q, found := strings.CutPrefix(strings.ReplaceAll(weight, " ", ""), "q=")
			v, err := strconv.ParseFloat(q, 64)
			return found && err == nil && v > 0
		}
	}
	return false
}
