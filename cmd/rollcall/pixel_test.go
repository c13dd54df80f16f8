package main

import (
	"bytes"
	"fmt"
	"image/gif"
	"io"
	"net/http"
	"strings"
	"testing"
)

const browserAgent = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"

// pixel asks for the pixel as a browser does.
func (s *server) pixel(method, query string, header ...string) (*http.Response, []byte) {
	s.t.Helper()
	r, err := http.NewRequest(method, s.url+"/v1/pixel.gif?"+query, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("User-Agent", browserAgent)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res, body
}

func TestPixel(t *testing.T) {
	s := start(t, t.TempDir())
	key := "key=" + s.key(writeName)
	f := func(query string, status int, code string, header ...string) {
		t.Helper()
		res, body := s.pixel("GET", query, header...)
		if res.StatusCode != status || res.Header.Get("X-Rollcall-Code") != code {
			t.Errorf("?%s: %d %q; want %d %q", query, res.StatusCode, res.Header.Get("X-Rollcall-Code"), status, code)
		}
		s.isPixel(res, body)
	}
	// Every load counts, the same URL too.
	for range 3 {
		f(key+"&wait=30s", 200, "", "Referer", "https://shop.example/book/7?x=1")
	}
	for i := range 20 {
		f(fmt.Sprintf("%s&user=u%d&_=%d", key, i%4, i), 200, "")
	}
	s.counted("page_view", 23, 4)
	f(key+"&wait=30s&event=mail&user=%E9%98%85&id=m1&ts=1e0&value=1", 422, "too_old")
	f(key+"&wait=30s&event=mail&user=%E9%98%85&id=m1&value=1&p.campaign=a%26b", 200, "")
	f(key+"&wait=30s&event=mail&user=%E9%98%85&id=m1&value=1", 200, "")
	s.counted("mail", 1, 1)

	f("", 401, "key_missing")
	f("key=rcw_nobody", 401, "key_unknown")
	f("key="+s.key(readName), 403, "key_scope")
	f(key+"&user=%FF", 422, "bad_utf8")
	f(key+"&p.page="+strings.Repeat("x", 2000), 422, "too_long")
	f(key+"&user=%zz", 400, "malformed_query")
	f(key+"&wait=x", 422, "bad_wait")
	f(key+"&event=dry&dry_run=1", 200, "")
	// A HEAD shows nothing.
	if res, body := s.pixel("HEAD", key+"&event=head"); res.StatusCode != 200 || len(body) != 0 || res.Header.Get("Content-Type") != "image/gif" || res.ContentLength != 43 {
		t.Errorf("HEAD: %d %v %q", res.StatusCode, res.Header, body)
	}
	// A bot's load is taken and counts for nothing (HT-12).
	f(key+"&wait=30s&event=crawled", 200, "", "User-Agent", "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)")
	f(key+"&wait=30s&event=last", 200, "")
	s.counted("*", 25, 5)
	s.counted("crawled", 0, 0)
	s.stop()
}

// isPixel checks that an answer is the picture and will be asked for again.
func (s *server) isPixel(res *http.Response, body []byte) {
	s.t.Helper()
	img, err := gif.Decode(bytes.NewReader(body))
	if err != nil || len(body) != 43 || !bytes.HasPrefix(body, []byte("GIF89a")) {
		s.t.Fatalf("%d: no GIF of 43 bytes: %q %v", res.StatusCode, body, err)
	}
	if _, _, _, alpha := img.At(0, 0).RGBA(); alpha != 0 || img.Bounds().Dx() != 1 || img.Bounds().Dy() != 1 {
		s.t.Errorf("%v with alpha %d; want one transparent pixel", img.Bounds(), alpha)
	}
	h := res.Header
	for name, want := range map[string]string{
		"Content-Type": "image/gif", "Cache-Control": "no-store, no-cache, must-revalidate", "Pragma": "no-cache", "Expires": "1970",
	} {
		if !strings.Contains(h.Get(name), want) {
			s.t.Errorf("%s: %q; want %q", name, h.Get(name), want)
		}
	}
	if h.Get("Etag") != "" || h.Get("Last-Modified") != "" {
		s.t.Errorf("a validator would save a browser the next load: %v", h)
	}
}
