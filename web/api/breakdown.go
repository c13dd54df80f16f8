package api

import (
	"context"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/rollcall/rollcall/counters/breakdown"
	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/period"
)

// Breaker answers /v1/breakdown; *breakdown.Query is one.
type Breaker interface {
	Breakdown(context.Context, breakdown.Request) (*breakdown.Breakdown, error)
}

// Breakdown is GET /v1/breakdown and /v1/breakdown.csv: ?event=, prop=, the range (by default 7d), interval= (by default none: the whole
// range) and limit= (by default 10).
func (a *API) Breakdown(c *gin.Context, who Caller) error {
	query := c.Request.URL.RawQuery
	r := breakdown.Request{
		Project: who.Project.ID, Zone: who.Project.Location, Event: queryValue(query, "event"), Prop: queryValue(query, "prop"),
		From: queryValue(query, "from"), To: queryValue(query, "to"), Period: queryValue(query, "period"), Limit: 10,
	}
	for _, b := range who.Project.Breakdowns {
		r.Specs = append(r.Specs, breakdown.Spec{Event: b.Event, Props: b.Props, Top: b.Top})
	}
	if r.From == "" && r.To == "" && r.Period == "" {
		r.Period = "7d"
	}
	var err error
	if s := queryValue(query, "interval"); s != "" {
		if r.Interval, err = period.ParseKind(s); err != nil {
			return err
		}
	}
	if s := queryValue(query, "limit"); s != "" {
		if r.Limit, err = strconv.Atoi(s); err != nil {
			return apperr.New(apperr.Invalid, "bad_limit", "limit is 1 to %d.", breakdown.MaxLimit).On("limit").Over(strconv.Itoa(breakdown.MaxLimit), "")
		}
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), queryTimeout)
	defer cancel()
	b, err := a.o.Breakdown.Breakdown(ctx, r)
	if err != nil {
		return err
	}
	return sendTable(c, b)
}
