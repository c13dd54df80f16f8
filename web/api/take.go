package api

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rollcall/rollcall/ingest"
	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/project"
)

// MaxWait is the longest ?wait=.
const MaxWait = 30 * time.Second

var (
	errWait = apperr.New(apperr.Invalid, "bad_wait", "wait is a duration such as 2s.").On("wait").Over("30s", "")
	errFlag = apperr.New(apperr.Invalid, "bad_flag", "historical and dry_run are 1 or 0.")
	errBody = apperr.New(apperr.TooLarge, "body_too_large", "The request body is too large; send fewer events at a time.")
)

// take is the one way by which events come in, whatever their form: who sent them, how often, then Accept. r says what is particular to
// the form; without a Body it is the request's. browser tells that only a browser sends this form.
//
// When a frequency rule has refused everything, Retry-After is set.
func (a *API) take(c *gin.Context, who Caller, r ingest.Request, browser bool) (*ingest.Result, error) {
	if err := a.prepare(c, who, &r, browser); err != nil {
		return nil, err
	}
	return a.accept(c, r, &r)
}

// prepare fills in what a caller's project and the query say about a request.
func (a *API) prepare(c *gin.Context, who Caller, r *ingest.Request, browser bool) error {
	p := who.Project
	r.Project, r.LateWindow = p.ID, time.Duration(p.LateWindow)
	if err := takeQuery(c.Request.URL.RawQuery, r); err != nil {
		return err
	}
	if r.Historical && who.Key.Scope != project.Admin {
		return errHistorical
	}
	if r.Wait > 0 {
		if err := a.syncRate(c, who); err != nil {
			return err
		}
	}
	v := &visit{a: a, c: c, who: who}
	if err := v.limit(r); err != nil {
		return err
	}
	if r.Historical {
		return nil
	}
	if err := v.identify(r, browser); err != nil {
		return err
	}
	if len(p.Frequency) > 0 {
		r.Frequency = &frequency{visit: v, waits: r.Wait > 0}
	}
	return nil
}

// accept hands a request to ingest. prepared is the same, or what Open makes of it.
func (a *API) accept(c *gin.Context, r ingest.Request, prepared *ingest.Request) (*ingest.Result, error) {
	if r.Body == nil {
		var err error
		if r.Body, err = a.body(c); err != nil {
			return nil, err
		}
		r.ContentEncoding = c.Request.Header.Get("Content-Encoding")
	}
	res, err := a.o.Ingest.Accept(c.Request.Context(), r)
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return nil, a.tooLarge()
		}
		return nil, err
	}
	if !res.DryRun {
		a.metrics.add(prepared.Project, res)
	}
	if rules, ok := prepared.Frequency.(*frequency); ok && res.AllTooFrequent() {
		c.Writer.Header()["Retry-After"] = []string{seconds(rules.retry)}
	}
	return res, nil
}

// taken is the status of an answer to events: 202, 200 for a dry run, 422 when all were rejected, 429 when all came too often.
func taken(res *ingest.Result) int {
	switch {
	case res.AllTooFrequent():
		return http.StatusTooManyRequests
	case res.AllRejected():
		return http.StatusUnprocessableEntity
	case res.DryRun:
		return http.StatusOK
	}
	return http.StatusAccepted
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

// takeQuery reads wait, historical and dry_run.
func takeQuery(query string, r *ingest.Request) (err error) {
	if query == "" {
		return nil
	}
	if w := queryValue(query, "wait"); w != "" {
		if r.Wait, err = time.ParseDuration(w); err != nil || r.Wait < 0 || r.Wait > MaxWait {
			return errWait
		}
	}
	if r.Historical, err = flag(query, "historical"); err != nil {
		return err
	}
	r.DryRun, err = flag(query, "dry_run")
	return err
}

func flag(query, name string) (bool, error) {
	switch queryValue(query, name) {
	case "1", "true":
		return true, nil
	case "", "0", "false":
		return false, nil
	}
	return false, errFlag.On(name)
}

// seconds is a span as Retry-After has it: whole seconds, rounded up, at least 1.
func seconds(d time.Duration) string {
	return strconv.FormatInt(max(1, int64((d+time.Second-1)/time.Second)), 10)
}
