package api

import (
	"bytes"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/rollcall/rollcall/ingest"
)

// PixelPath is the URL whose every answer is a picture.
const PixelPath = "/v1/pixel.gif"

// dot is a transparent GIF89a of one pixel, 43 bytes.
var dot = []byte("GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff" + "!\xf9\x04\x01\x00\x00\x00\x00" +
	",\x00\x00\x00\x00\x01\x00\x01\x00\x00" + "\x02\x02D\x01\x00" + ";")

// Headers of a picture that is fetched anew whenever it is shown, by pages of any origin.
var (
	gifType    = []string{"image/gif"}
	neverCache = []string{"no-store, no-cache, must-revalidate, max-age=0"}
	pragma     = []string{"no-cache"}
	longAgo    = []string{"Thu, 01 Jan 1970 00:00:00 GMT"}
	anySite    = []string{"cross-origin"}
)

// Pixel is GET /v1/pixel.gif: one event in the query (ingest.AppendPixel). 200 says that it was taken. Whatever becomes of it, the
// answer is the picture, since it stands in a page; X-Rollcall-Code tells why an event was not taken.
func (a *API) Pixel(c *gin.Context, who Caller) error {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	var err error
	if *buf, err = ingest.AppendPixel((*buf)[:0], c.Request.URL.RawQuery, c.Request.Header.Get("Referer")); err != nil {
		return err
	}
	res, err := a.take(c, who, ingest.Request{Body: bytes.NewReader(*buf)}, true)
	if err != nil {
		return err
	}
	status, code := taken(res), ""
	if len(res.Rejected) > 0 {
		code = res.Rejected[0].Code
	} else {
		status = http.StatusOK
	}
	sendPixel(c, status, code)
	return nil
}

// PixelHead is HEAD of it: what GET would answer to a good event. Nothing was shown, so nothing is counted.
func PixelHead(c *gin.Context) error {
	sendPixel(c, http.StatusOK, "")
	return nil
}

// sendPixel answers with the picture; code is that of a fault or of a rejection, "" = none.
func sendPixel(c *gin.Context, status int, code string) {
	h := c.Writer.Header()
	if code != "" {
		h["X-Rollcall-Code"] = []string{code}
	}
	h["Content-Type"] = gifType
	h["Cache-Control"], h["Pragma"], h["Expires"] = neverCache, pragma, longAgo
	h["Cross-Origin-Resource-Policy"] = anySite
	c.Writer.WriteHeader(status)
	_, _ = c.Writer.Write(dot) // whoever has gone away sees no picture
}
