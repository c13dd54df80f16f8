package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/counters/users"
	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/period"
)

// UserCounter answers everything that is asked of exact sets; *users.Query is one.
type UserCounter interface {
	Users(context.Context, users.Request) (*users.Users, error)
	Active(context.Context, users.ActiveRequest) (*users.ActiveUsers, error)
	Retention(context.Context, users.RetentionRequest) (*users.Retention, error)
	Overlap(context.Context, users.OverlapRequest) (*users.Overlap, error)
	Member(context.Context, users.OverlapRequest, string) (*users.Membership, error)
	CheckOverlap(users.OverlapRequest) error
	Members(context.Context, users.OverlapRequest, int, string) (*users.Members, error)
}

// asked reads a parameter, or what it is when it is not there.
func asked(query, name, otherwise string) string {
	if v := queryValue(query, name); v != "" {
		return v
	}
	return otherwise
}

// about reads the range: from= (and to=, by default the end of today), or period=.
func about(query string, who Caller, otherwise string) users.About {
	a := users.About{
		Project: who.Project.ID, Zone: who.Project.Location, Exact: who.Project.Exact,
		From: queryValue(query, "from"), To: queryValue(query, "to"), Period: queryValue(query, "period"),
	}
	if a.From == "" && a.To == "" && a.Period == "" {
		a.Period = otherwise
	}
	return a
}

// Users is GET /v1/users and /v1/users.csv: ?event= (by default any), the range (by default 7d), interval= (by default day), and method=
// (by default exact).
func (a *API) Users(c *gin.Context, who Caller) error {
	query := c.Request.URL.RawQuery
	interval, err := period.ParseKind(asked(query, "interval", "day"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), userTimeout)
	defer cancel()
	u, err := a.o.Users.Users(ctx, users.Request{
		About: about(query, who, "7d"), Event: asked(query, "event", counters.Any), Interval: interval,
		Method: users.Method(asked(query, "method", string(users.Exact))),
	})
	if err != nil {
		return err
	}
	return sendTable(c, u)
}

// userTimeout is longer than any limits.query_time.
const userTimeout = 55 * time.Second

// Active is GET /v1/active and /v1/active.csv: ?event= (by default any), the range (by default 30d) and interval= (by default day).
func (a *API) Active(c *gin.Context, who Caller) error {
	query := c.Request.URL.RawQuery
	interval, err := period.ParseKind(asked(query, "interval", "day"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), userTimeout)
	defer cancel()
	u, err := a.o.Users.Active(ctx, users.ActiveRequest{About: about(query, who, "30d"), Event: asked(query, "event", counters.Any), Interval: interval})
	if err != nil {
		return err
	}
	return sendTable(c, u)
}

// Retention is GET /v1/retention and /v1/retention.csv: the range of the cohorts (by default 84d), interval= (by default week), cohort= (first
// or active), cohort_event=, event=, periods= and kind= (classic or rolling).
func (a *API) Retention(c *gin.Context, who Caller) error {
	query := c.Request.URL.RawQuery
	interval, err := period.ParseKind(asked(query, "interval", "week"))
	if err != nil {
		return err
	}
	r := users.RetentionRequest{
		About: about(query, who, "84d"), Interval: interval,
		Start: asked(query, "cohort_event", counters.Any), Return: asked(query, "event", counters.Any),
	}
	switch asked(query, "cohort", "first") {
	case "first":
		r.Cohort = users.First
	case "active":
		r.Cohort = users.Active
	default:
		return apperr.New(apperr.Invalid, "bad_cohort", "cohort is first (who had cohort_event for the first time) or active (who had it).").On("cohort")
	}
	switch asked(query, "kind", "classic") {
	case "classic":
	case "rolling":
		r.Rolling = true
	default:
		return apperr.New(apperr.Invalid, "bad_kind", "kind is classic (back in just that period) or rolling (in that one or later).").On("kind")
	}
	if s := queryValue(query, "periods"); s != "" {
		if r.Periods, err = strconv.Atoi(s); err != nil || r.Periods < 1 {
			return apperr.New(apperr.Invalid, "bad_periods", "periods is 1 to %d.", users.MaxPeriods).On("periods").Over(strconv.Itoa(users.MaxPeriods), "")
		}
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), userTimeout)
	defer cancel()
	m, err := a.o.Users.Retention(ctx, r)
	if err != nil {
		return err
	}
	return sendTable(c, m)
}

func (a *API) overlap(ctx context.Context, who Caller, e users.Expression) users.OverlapRequest {
	return users.OverlapRequest{
		Project: who.Project.ID, Zone: who.Project.Location, Exact: who.Project.Exact, Expression: e,
		Cohort: func(name string) (users.Expression, error) {
			s, err := a.o.Cohorts.Get(ctx, who.Project.ID, name)
			if err != nil {
				return users.Expression{}, err
			}
			return s.Expression, nil
		},
	}
}

// Overlap is POST /v1/users/count {"expression": …}.
func (a *API) Overlap(c *gin.Context, who Caller) error {
	var r struct {
		Expression users.Expression `json:"expression"`
	}
	if err := decode(c, &r); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), userTimeout)
	defer cancel()
	o, err := a.o.Users.Overlap(ctx, a.overlap(ctx, who, r.Expression))
	if err != nil {
		return err
	}
	return sendJSON(c, http.StatusOK, o)
}

// userID is a user as events have it: text, or an integer of which every digit counts.
type userID string

func (u *userID) UnmarshalJSON(b []byte) error {
	if integer := bytes.TrimPrefix(b, []byte("-")); len(integer) > 0 && len(bytes.Trim(integer, "0123456789")) == 0 {
		*u = userID(b)
		return nil
	}
	return json.Unmarshal(b, (*string)(u))
}

// Member is POST /v1/users/member {"expression": …, "user": …}.
func (a *API) Member(c *gin.Context, who Caller) error {
	var r struct {
		Expression users.Expression `json:"expression"`
		User       userID           `json:"user"`
	}
	if err := decode(c, &r); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), userTimeout)
	defer cancel()
	m, err := a.o.Users.Member(ctx, a.overlap(ctx, who, r.Expression), string(r.User))
	if err != nil {
		return err
	}
	return sendJSON(c, http.StatusOK, m)
}

// Members is POST /v1/users/list {"expression": …, "limit"?, "cursor"?}.
func (a *API) Members(c *gin.Context, who Caller) error {
	r := struct {
		Expression users.Expression `json:"expression"`
		Limit      int              `json:"limit"`
		Cursor     string           `json:"cursor"`
	}{Limit: 100}
	if err := decode(c, &r); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), userTimeout)
	defer cancel()
	m, err := a.o.Users.Members(ctx, a.overlap(ctx, who, r.Expression), r.Limit, r.Cursor)
	if err != nil {
		return err
	}
	return sendJSON(c, http.StatusOK, m)
}

// CohortNames is GET /v1/cohorts.
func (a *API) CohortNames(c *gin.Context, who Caller) error {
	names, err := a.o.Cohorts.List(c.Request.Context(), who.Project.ID)
	if err != nil {
		return err
	}
	return sendJSON(c, http.StatusOK, gin.H{"cohorts": append([]string{}, names...)})
}

// Cohort is GET /v1/cohorts/:cohort.
func (a *API) Cohort(c *gin.Context, who Caller) error {
	s, err := a.o.Cohorts.Get(c.Request.Context(), who.Project.ID, c.Param("cohort"))
	if err != nil {
		return err
	}
	return sendJSON(c, http.StatusOK, s)
}

// SaveCohort is PUT /v1/cohorts/:cohort {"expression": …}.
func (a *API) SaveCohort(c *gin.Context, who Caller) error {
	var r struct {
		Expression users.Expression `json:"expression"`
	}
	if err := decode(c, &r); err != nil {
		return err
	}
	// It must make sense now: its cohorts exist and do not come back to it, its events have sets.
	check := a.overlap(c.Request.Context(), who, r.Expression)
	saved := check.Cohort
	check.Cohort = func(name string) (users.Expression, error) {
		if name == c.Param("cohort") {
			return r.Expression, nil
		}
		return saved(name)
	}
	if check.Expression = (users.Expression{Cohort: c.Param("cohort")}); users.ValidCohort(c.Param("cohort")) == nil {
		if err := a.o.Users.CheckOverlap(check); err != nil {
			return err
		}
	}
	s, err := a.o.Cohorts.Put(c.Request.Context(), who.Project.ID, c.Param("cohort"), r.Expression)
	if err != nil {
		return err
	}
	return sendJSON(c, http.StatusOK, s)
}

// DeleteCohort is DELETE /v1/cohorts/:cohort.
func (a *API) DeleteCohort(c *gin.Context, who Caller) error {
	deleted, err := a.o.Cohorts.Delete(c.Request.Context(), who.Project.ID, c.Param("cohort"))
	if err != nil {
		return err
	}
	return sendJSON(c, http.StatusOK, gin.H{"name": c.Param("cohort"), "deleted": deleted})
}
