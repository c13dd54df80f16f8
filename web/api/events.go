package api

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rollcall/rollcall/ingest"
	"github.com/rollcall/rollcall/internal/apperr"
)

// MaxWait is the longest ?wait=.
const MaxWait = 30 * time.Second

var (
	errWait = apperr.New(apperr.Invalid, "bad_wait", "wait is a duration such as 2s.").On("wait").Over("30s", "")
	errFlag = apperr.New(apperr.Invalid, "bad_historical", "historical is 1 or 0.").On("historical")
	errBody = apperr.New(apperr.TooLarge, "body_too_large", "The request body is too large; send fewer events at a time.")
)

// Events is POST /v1/events.
func (a *API) Events(c *gin.Context) error {
	key, project, err := a.o.Keys.authorize(c, Write)
	if err != nil {
		return err
	}
	r := ingest.Request{Project: project.ID, LateWindow: project.LateWindow, ContentEncoding: c.Request.Header.Get("Content-Encoding")}
	if r.Wait, r.Historical, err = eventsQuery(c.Request.URL.RawQuery); err != nil {
		return err
	}
	if r.Historical && key.Scope != Admin {
		return errHistorical
	}
	if r.Body, err = a.body(c); err != nil {
		return err
	}
	res, err := a.o.Ingest.Accept(c.Request.Context(), r)
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return a.tooLarge()
		}
		return err
	}
	a.metrics.add(res)
	status := http.StatusAccepted
	if res.AllRejected() {
		status = http.StatusUnprocessableEntity
	}
	buf := buffers.Get().(*[]byte)
	*buf = res.AppendJSON((*buf)[:0])
	send(c, status, jsonType, *buf)
	if cap(*buf) <= 64<<10 {
		buffers.Put(buf)
	}
	return nil
}

// body returns the request's body, bounded. A declared length is kept by net/http, so it needs no second guard.
func (a *API) body(c *gin.Context) (io.Reader, error) {
	switch n := c.Request.ContentLength; {
	case n > a.o.MaxBody:
		// Most clients read the answer only after they have sent everything: a connection that is closed before shows them a
		// network fault, and they send the same again. So what is not hopeless is read, into nothing.
		if n <= 4*a.o.MaxBody {
			_, _ = io.Copy(io.Discard, c.Request.Body)
		}
		return nil, a.tooLarge()
	case n >= 0:
		return c.Request.Body, nil
	}
	return http.MaxBytesReader(c.Writer, c.Request.Body, a.o.MaxBody), nil
}

func (a *API) tooLarge() error { return errBody.Over(byteCount(a.o.MaxBody), "limits.max_body") }

func eventsQuery(query string) (wait time.Duration, historical bool, err error) {
	if query == "" {
		return 0, false, nil
	}
	if w := queryValue(query, "wait"); w != "" {
		if wait, err = time.ParseDuration(w); err != nil || wait < 0 || wait > MaxWait {
			return 0, false, errWait
		}
	}
	switch queryValue(query, "historical") {
	case "1", "true":
		historical = true
	case "", "0", "false":
	default:
		return 0, false, errFlag
	}
	return wait, historical, nil
}
