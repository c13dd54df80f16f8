package api

import (
	"context"

	"github.com/gin-gonic/gin"

	"github.com/rollcall/rollcall/ingest/drops"
)

// Accountant answers /v1/drops; *drops.Query is one.
type Accountant interface {
	Drops(context.Context, drops.Request) (*drops.Drops, error)
}

// Drops is GET /v1/drops and /v1/drops.csv: what became of the events that came, from= (and to=, by default the end of today) or period= (by
// default 1h), and interval= (minute, hour or day; by default whichever fits).
func (a *API) Drops(c *gin.Context, who Caller) error {
	query := c.Request.URL.RawQuery
	r := drops.Request{
		Project: who.Project.ID, Zone: who.Project.Location,
		From: queryValue(query, "from"), To: queryValue(query, "to"), Period: queryValue(query, "period"), Interval: queryValue(query, "interval"),
	}
	if r.From == "" && r.To == "" && r.Period == "" {
		r.Period = "1h"
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), queryTimeout)
	defer cancel()
	d, err := a.o.Drops.Drops(ctx, r)
	if err != nil {
		return err
	}
	return sendTable(c, d)
}
