package api

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/internal/period"
)

// queryTimeout bounds a question, its retries included: a Redis that hangs is answered 503 by then.
const queryTimeout = 5 * time.Second

// Counts is GET /v1/counts and /v1/counts.csv: ?event=, from= (and to=, by default the end of today) or period= (today, yesterday,
// 1d to 400d, by default 7d), and interval= (by default day).
func (a *API) Counts(c *gin.Context, who Caller) (err error) {
	query := c.Request.URL.RawQuery
	r := counters.CountsRequest{
		Project: who.Project.ID, Zone: who.Project.Location, Event: queryValue(query, "event"),
		From: queryValue(query, "from"), To: queryValue(query, "to"), Period: queryValue(query, "period"),
	}
	if r.From == "" && r.To == "" && r.Period == "" {
		r.Period = "7d"
	}
	interval := queryValue(query, "interval")
	if interval == "" {
		interval = "day"
	}
	if r.Interval, err = period.ParseKind(interval); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), queryTimeout)
	defer cancel()
	counts, err := a.o.Counts.Counts(ctx, r)
	if err != nil {
		return err
	}
	return sendTable(c, counts)
}

// Names is GET /v1/names: the events that are counted each by itself.
func (a *API) Names(c *gin.Context, who Caller) error {
	ctx, cancel := context.WithTimeout(c.Request.Context(), queryTimeout)
	defer cancel()
	names, err := a.o.Counts.Names(ctx, who.Project.ID)
	if err != nil {
		return err
	}
	return sendJSON(c, http.StatusOK, names)
}

// table is an answer that has rows.
type table interface{ WriteCSV(io.Writer) error }

// sendTable sends an answer as JSON, or as CSV to those who want that.
func sendTable(c *gin.Context, t table) error {
	c.Writer.Header()["Vary"] = []string{"Accept"}
	if strings.HasSuffix(c.FullPath(), ".csv") || wantsCSV(c.Request.Header.Get("Accept")) {
		var csv bytes.Buffer
		if err := t.WriteCSV(&csv); err != nil {
			return err
		}
		send(c, http.StatusOK, csvType, csv.Bytes())
		return nil
	}
	return sendJSON(c, http.StatusOK, t)
}

// wantsCSV tells whether a client names CSV before JSON.
func wantsCSV(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		kind, params, _ := strings.Cut(part, ";")
		if q, ok := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q=0"); ok && strings.Trim(q, ".0") == "" {
			continue // not wanted at all
		}
		switch strings.ToLower(strings.TrimSpace(kind)) {
		case "text/csv":
			return true
		case "application/json", "*/*", "application/*":
			return false
		}
	}
	return false
}
