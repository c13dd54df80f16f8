package api

import (
	"encoding/base64"
	"net/url"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/project"
)

// Caller is who sent a request: a key that is good, has the scope that its route takes, and opens the project that the request is
// about. Handlers that take one can't reach another project.
type Caller struct {
	Key     *project.Key
	Project *project.Project // nil only on routes about the whole installation: see Managed
}

// Keyed is a handler of a route that takes a key.
type Keyed func(*gin.Context, Caller) error

// The refusals.
var (
	errNoKey      = apperr.New(apperr.Unauthorized, "key_missing", "No key: send it as \"Authorization: Bearer KEY\", as the user name of Basic, or as ?key=.")
	errMayWrite   = apperr.New(apperr.Forbidden, "key_scope", "This key may only send events; reading takes a read or an admin key.")
	errMayRead    = apperr.New(apperr.Forbidden, "key_scope", "This key may only read; sending events takes a write or an admin key.")
	errMayManage  = apperr.New(apperr.Forbidden, "key_scope", "This takes an admin key.")
	errRoot       = apperr.New(apperr.Forbidden, "key_scope", "This takes an admin key that opens every project; this one belongs to one.")
	errHistorical = apperr.New(apperr.Forbidden, "key_scope", "Importing history takes an admin key.").On("historical")
	errForeign    = apperr.New(apperr.Forbidden, "key_scope", "This key belongs to another project.").On("project")
	errNoProject  = apperr.New(apperr.Invalid, "project_required", "This key opens several projects: name one as ?project= or in X-Rollcall-Project.").On("project")
)

// Keyed makes a handler of one that takes a caller whose key has the scope.
func (a *API) Keyed(need project.Scope, h Keyed) Handler {
	return func(c *gin.Context) error {
		who, err := a.authorize(c, need, secretOf(c))
		if err != nil {
			return err
		}
		if need != project.Write {
			if err := a.syncRate(c, who); err != nil {
				return err
			}
		}
		return h(c, who)
	}
}

// Managed makes a handler of one about the installation: the caller's key has the scope Admin and opens every project.
func (a *API) Managed(h Keyed) Handler {
	return func(c *gin.Context) error {
		key, err := a.key(secretOf(c), project.Admin)
		if err != nil {
			return err
		}
		if key.Project != "" {
			return errRoot
		}
		return h(c, Caller{Key: key})
	}
}

// authorize finds the caller of a secret, "" = none was sent.
func (a *API) authorize(c *gin.Context, need project.Scope, secret string) (Caller, error) {
	key, err := a.key(secret, need)
	if err != nil {
		return Caller{}, err
	}
	id := key.Project
	if named := projectOf(c); named != "" && named != id {
		if id != "" {
			return Caller{}, errForeign
		}
		id = named
	}
	if id == "" {
		only := a.o.Directory.Only()
		if only == nil {
			return Caller{}, errNoProject
		}
		id = only.ID
	}
	find := a.o.Directory.Project
	if need == project.Admin {
		find = a.o.Directory.Any // a closed project can still be managed
	}
	p, err := find(id)
	if err != nil {
		return Caller{}, err
	}
	return Caller{key, p}, nil
}

func (a *API) key(secret string, need project.Scope) (*project.Key, error) {
	if secret == "" {
		return nil, errNoKey
	}
	key, err := a.o.Directory.Find(secret)
	switch {
	case err != nil:
		return nil, err
	case key.Scope == need || key.Scope == project.Admin:
		return key, nil
	case need == project.Admin:
		return nil, errMayManage
	case key.Scope == project.Write:
		return nil, errMayWrite
	}
	return nil, errMayRead
}

// projectOf is the project that a request names: in its path, its query or a header.
func projectOf(c *gin.Context) string {
	if id := c.Param("project"); id != "" {
		return id
	}
	if id := queryValue(c.Request.URL.RawQuery, "project"); id != "" {
		return id
	}
	if h := c.Request.Header["X-Rollcall-Project"]; len(h) > 0 {
		return h[0]
	}
	return ""
}

// secretOf is the key that a request carries, "" if there is none.
func secretOf(c *gin.Context) string {
	if key := bearer(c.Request.Header.Get("Authorization")); key != "" {
		return key
	}
	return queryValue(c.Request.URL.RawQuery, "key")
}

const maxBasic = 512 // bytes; a key is 44

// bearer returns the key of an Authorization header: Bearer's token or Basic's user name.
func bearer(h string) string {
	scheme, rest, ok := strings.Cut(h, " ")
	if !ok {
		return ""
	}
	rest = strings.TrimSpace(rest)
	switch {
	case strings.EqualFold(scheme, "Bearer"):
		return rest
	case strings.EqualFold(scheme, "Basic") && len(rest) <= maxBasic:
		user, err := base64.StdEncoding.DecodeString(rest)
		if err != nil {
			return ""
		}
		name, _, _ := strings.Cut(string(user), ":")
		return name
	}
	return ""
}

// queryValue returns the first value of a parameter without making a map of all of them: it is on the way of every beacon.
func queryValue(query, name string) string {
	for query != "" {
		var part string
		part, query, _ = strings.Cut(query, "&")
		if v, ok := strings.CutPrefix(part, name); ok && strings.HasPrefix(v, "=") {
			if v = v[1:]; strings.ContainsAny(v, "%+") {
				var err error
				if v, err = url.QueryUnescape(v); err != nil {
					return ""
				}
			}
			return v
		}
	}
	return ""
}
