package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/project"
)

// projectView is a project as the API shows it.
type projectView struct {
	project.Spec
	Source  project.Source `json:"source"`
	Created time.Time      `json:"created,omitzero"`
}

func viewProject(p *project.Project) projectView {
	v := projectView{p.Spec, p.Source, p.Created}
	v.Origins = append([]string{}, v.Origins...) // [] rather than null, which slices.Concat would make of nothing
	v.Frequency = append([]project.Frequency{}, v.Frequency...)
	v.Exact = append([]string{}, v.Exact...)
	v.Breakdowns = append([]project.Breakdown{}, v.Breakdowns...)
	return v
}

// keyView is a key as the API shows it. The key itself is shown once, by the answer that made it.
type keyView struct {
	ID       string         `json:"id"`
	Name     string         `json:"name"`
	Project  string         `json:"project,omitempty"`
	Scope    project.Scope  `json:"scope"`
	Source   project.Source `json:"source"`
	State    string         `json:"state"` // active, expired, revoked
	Created  time.Time      `json:"created,omitzero"`
	LastUsed time.Time      `json:"last_used,omitzero"`
	Expires  time.Time      `json:"expires,omitzero"`
	Revoked  time.Time      `json:"revoked,omitzero"`
	Key      string         `json:"key,omitempty"`
}

func (a *API) viewKey(k *project.Key, secret string) keyView {
	v := keyView{
		ID: k.ID, Name: k.Name, Project: k.Project, Scope: k.Scope, Source: k.Source, State: "active",
		Created: k.Created, LastUsed: k.LastUsed(), Expires: k.Expires, Revoked: k.Revoked, Key: secret,
	}
	switch {
	case !k.Revoked.IsZero():
		v.State = "revoked"
	case !k.Expires.IsZero() && !a.o.Clock.Now().Before(k.Expires):
		v.State = "expired"
	}
	return v
}

func sendJSON(c *gin.Context, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	send(c, status, jsonType, append(body, '\n'))
	return nil
}

const maxChange = 64 << 10 // bytes of a body that changes a project or a key

// decode reads a small JSON object into v. Unknown fields are refused: a misspelt limit must not look like one that was set.
func decode(c *gin.Context, v any) error {
	body, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, maxChange))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return errBody.Over(byteCount(maxChange), "")
	}
	if err != nil {
		return apperr.New(apperr.Malformed, "unreadable_body", "The body could not be read to its end. Nothing was changed.").With(err)
	}
	return strict(body, v)
}

func strict(body []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, more := d.Token(); more == io.EOF {
			return nil
		}
		err = errors.New("something follows the object")
	}
	var public *apperr.Error
	if errors.As(err, &public) {
		return public
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) { // its own text names types of this program
		text = fmt.Sprintf("a %s does not belong there (byte %d)", kind.Value, kind.Offset)
		if kind.Field != "" {
			text = fmt.Sprintf("%s can't be a %s (byte %d)", kind.Field, kind.Value, kind.Offset)
		}
	}
	return apperr.New(apperr.Malformed, "malformed_body", "The body can't be read: %s. Nothing was changed.", text)
}

// patch replaces the fields that body has. Lists are replaced as a whole: decoding into the old one would let its items shine through.
func patch(body []byte, s *project.Spec) error {
	old := *s
	s.Origins, s.Frequency, s.Exact, s.Breakdowns = nil, nil, nil, nil
	if err := strict(body, s); err != nil {
		return err
	}
	if s.Origins == nil {
		s.Origins = old.Origins
	}
	if s.Frequency == nil {
		s.Frequency = old.Frequency
	}
	if s.Exact == nil {
		s.Exact = old.Exact
	}
	if s.Breakdowns == nil {
		s.Breakdowns = old.Breakdowns
	}
	return nil
}

// Projects is GET /v1/projects: all of them, or the one of the caller's key.
func (a *API) Projects(c *gin.Context) error {
	key, err := a.key(secretOf(c), project.Admin)
	if err != nil {
		return err
	}
	list := []projectView{}
	for _, p := range a.o.Directory.Projects() {
		if key.Project == "" || key.Project == p.ID {
			list = append(list, viewProject(p))
		}
	}
	return sendJSON(c, http.StatusOK, gin.H{"projects": list})
}

// CreateProject is POST /v1/projects.
func (a *API) CreateProject(c *gin.Context, _ Caller) error {
	var spec project.Spec
	if err := decode(c, &spec); err != nil {
		return err
	}
	p, err := a.o.Projects.CreateProject(c.Request.Context(), spec, a.o.Zone, a.o.Late)
	if err != nil {
		return err
	}
	return sendJSON(c, http.StatusCreated, viewProject(p))
}

// Project is GET /v1/projects/:project.
func (a *API) Project(c *gin.Context, who Caller) error {
	return sendJSON(c, http.StatusOK, viewProject(who.Project))
}

// UpdateProject is PATCH /v1/projects/:project: fields that are given replace those there are.
func (a *API) UpdateProject(c *gin.Context, who Caller) error {
	var given json.RawMessage
	if err := decode(c, &given); err != nil {
		return err
	}
	p, err := a.o.Projects.UpdateProject(c.Request.Context(), who.Project.ID, func(s *project.Spec) error {
		return patch(given, s)
	})
	if err != nil {
		return err
	}
	return sendJSON(c, http.StatusOK, viewProject(p))
}

// Keys is GET /v1/projects/:project/keys, and GET /v1/keys: those that open every project.
func (a *API) Keys(c *gin.Context, who Caller) error {
	list := []keyView{}
	for _, k := range a.o.Directory.Keys(who.project()) {
		list = append(list, a.viewKey(k, ""))
	}
	return sendJSON(c, http.StatusOK, gin.H{"keys": list})
}

// project is the id of the caller's project, "" for the whole installation.
func (w Caller) project() string {
	if w.Project == nil {
		return ""
	}
	return w.Project.ID
}

// CreateKey is POST /v1/projects/:project/keys and POST /v1/keys. The answer holds the key, which is kept nowhere.
func (a *API) CreateKey(c *gin.Context, who Caller) error {
	var r struct {
		Name    string        `json:"name"`
		Scope   project.Scope `json:"scope"`
		Expires time.Time     `json:"expires"`
	}
	if err := decode(c, &r); err != nil {
		return err
	}
	if r.Scope == 0 {
		return apperr.New(apperr.Invalid, "bad_key", "scope is one of write, read and admin.").On("scope")
	}
	k, secret, err := a.o.Projects.CreateKey(c.Request.Context(), who.project(), r.Name, r.Scope, r.Expires)
	if err != nil {
		return err
	}
	return sendJSON(c, http.StatusCreated, a.viewKey(k, secret))
}

// RevokeKey is DELETE /v1/projects/:project/keys/:key and DELETE /v1/keys/:key. The key stops working at once, and stays in the list.
func (a *API) RevokeKey(c *gin.Context, who Caller) error {
	k, err := a.o.Projects.RevokeKey(c.Request.Context(), who.project(), c.Param("key"))
	if err != nil {
		return err
	}
	return sendJSON(c, http.StatusOK, a.viewKey(k, ""))
}

// graceOfRotation is how long a rotated key still works when the request does not say.
const graceOfRotation = 24 * time.Hour

// RotateKey is POST /v1/projects/:project/keys/:key/rotate and POST /v1/keys/:key/rotate: a new key of the same kind; the old one still
// works for the span "grace", by default 24h.
func (a *API) RotateKey(c *gin.Context, who Caller) error {
	r := struct {
		Grace *clock.Duration `json:"grace"`
	}{}
	if c.Request.ContentLength != 0 {
		if err := decode(c, &r); err != nil {
			return err
		}
	}
	grace := graceOfRotation
	if r.Grace != nil {
		grace = time.Duration(*r.Grace)
	}
	if grace > 90*24*time.Hour {
		return apperr.New(apperr.Invalid, "bad_grace", "grace is at most 90d.").On("grace").Over("90d", "")
	}
	old, made, secret, err := a.o.Projects.RotateKey(c.Request.Context(), who.project(), c.Param("key"), grace)
	if err != nil {
		return err
	}
	return sendJSON(c, http.StatusCreated, gin.H{"old": a.viewKey(old, ""), "new": a.viewKey(made, secret)})
}
