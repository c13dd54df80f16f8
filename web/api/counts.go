package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/period"
)

var (
	errNoEvent  = apperr.New(apperr.Invalid, "parameter_missing", "event must be given: the name of an event, or * for any.").On("event")
	errHalf     = apperr.New(apperr.Invalid, "parameter_missing", "from and to come together: a range [from, to) of dates or instants.")
	errTwoRange = apperr.New(apperr.Invalid, "bad_period", "Give from and to, or period, not both.").On("period")
)

// Counts is GET /v1/counts and /v1/counts.csv: ?event=, and from= with to=, or period= (today, yesterday, 1d to 400d), and
// interval= (day by default).
func (a *API) Counts(c *gin.Context) error {
	_, project, err := a.o.Keys.authorize(c, Read)
	if err != nil {
		return err
	}
	query := c.Request.URL.RawQuery
	r := counters.CountsRequest{
		Project: project.ID, Zone: project.Zone,
		Event: queryValue(query, "event"),
	}
	if r.Event == "" {
		return errNoEvent
	}
	if r.From, r.To, err = a.countsRange(query, project.Zone); err != nil {
		return err
	}
	interval := queryValue(query, "interval")
	if interval == "" {
		interval = "day"
	}
	if r.Interval, err = period.ParseKind(interval); err != nil {
		return err
	}
	counts, err := a.o.Counts.Counts(c.Request.Context(), r)
	if err != nil {
		return err
	}
	c.Writer.Header()["Vary"] = []string{"Accept"}
	if strings.HasSuffix(c.FullPath(), ".csv") || wantsCSV(c.Request.Header.Get("Accept")) {
		send(c, http.StatusOK, csvType, appendCSV(nil, counts))
		return nil
	}
	body, err := json.Marshal(counts)
	if err != nil {
		return err
	}
	send(c, http.StatusOK, jsonType, append(body, '\n'))
	return nil
}

// countsRange reads from and to, or the period that ends with today; without either, the last seven days.
func (a *API) countsRange(query string, zone *time.Location) (from, to string, err error) {
	from, to = queryValue(query, "from"), queryValue(query, "to")
	name := queryValue(query, "period")
	switch {
	case name != "" && (from != "" || to != ""):
		return "", "", errTwoRange
	case from != "" && to != "":
		return from, to, nil
	case to != "":
		return "", "", errHalf.On("from")
	case from != "":
		return "", "", errHalf.On("to")
	case name == "":
		name = "7d"
	}
	first, end, err := period.Named(name, a.o.Clock.Now(), zone)
	return first.Format(time.RFC3339), end.Format(time.RFC3339), err
}

// wantsCSV tells whether a client names CSV before JSON.
func wantsCSV(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		kind, _, _ := strings.Cut(part, ";")
		switch strings.ToLower(strings.TrimSpace(kind)) {
		case "text/csv":
			return true
		case "application/json", "*/*", "application/*":
			return false
		}
	}
	return false
}
