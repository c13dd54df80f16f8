package api

import (
	"github.com/gin-gonic/gin"

	"github.com/rollcall/rollcall/ingest"
)

// Events is POST /v1/events.
func (a *API) Events(c *gin.Context, who Caller) error {
	res, err := a.take(c, who, ingest.Request{}, false)
	if err != nil {
		return err
	}
	buf := buffers.Get().(*[]byte)
	*buf = res.AppendJSON((*buf)[:0])
	send(c, taken(res), jsonType, *buf)
	if cap(*buf) <= 64<<10 {
		buffers.Put(buf)
	}
	return nil
}
