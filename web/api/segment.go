package api

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/rollcall/rollcall/ingest"
	"github.com/rollcall/rollcall/internal/project"
)

// Segment makes the handler of a call of the Segment HTTP API: POST /v1/track and the others. The key is the user name of Basic, as
// their SDKs send it, or any other that this API takes; without one, it is the member writeKey of the body.
//
// 200 says that something was stored, or that nothing was sent; SDKs look at no more than that.
func (a *API) Segment(call string) Handler {
	return func(c *gin.Context) error {
		r := ingest.Request{Form: ingest.Segment, Call: call}
		res, err := a.takeSegment(c, &r)
		if err != nil {
			return err
		}
		buf := buffers.Get().(*[]byte)
		status := taken(res)
		if status == http.StatusAccepted {
			status = http.StatusOK
		}
		b := append((*buf)[:0], `{"success":`...)
		if status == http.StatusOK {
			b = append(b, "true"...)
		} else {
			b = append(b, "false"...)
		}
		at := len(b)
		b = res.AppendJSON(b)
		b[at] = ',' // one object out of two
		send(c, status, jsonType, b)
		if *buf = b; cap(b) <= 64<<10 {
			buffers.Put(buf)
		}
		return nil
	}
}

func (a *API) takeSegment(c *gin.Context, r *ingest.Request) (*ingest.Result, error) {
	open := func(key string) error {
		who, err := a.authorize(c, project.Write, key)
		if err != nil {
			return err
		}
		return a.prepare(c, who, r, false)
	}
	if key := secretOf(c); key != "" {
		if err := open(key); err != nil {
			return nil, err
		}
		return a.accept(c, *r, r)
	}
	return a.accept(c, ingest.Request{Open: func(key string) (ingest.Request, error) {
		a.allowOrigin(c, key)
		err := open(key)
		return *r, err
	}}, r)
}
