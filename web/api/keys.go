package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/url"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/project"
)

// Scope is what a key may do.
type Scope uint8

// The scopes. Admin may do everything the others may.
const (
	Write Scope = 1 + iota // send events
	Read                   // ask for counts
	Admin
)

// Key is one key, known by its SHA-256 only.
type Key struct {
	Sum     [sha256.Size]byte
	Scope   Scope
	Project string // "" = every project; only for Admin
}

// Keyring knows the projects and which key opens what. It does not change.
type Keyring struct {
	projects map[string]project.Project
	only     string // the project's id when there is just one
	keys     map[[sha256.Size]byte]Key
}

// NewKeyring returns a ring of keys for projects.
func NewKeyring(projects []project.Project, keys []Key) *Keyring {
	k := &Keyring{projects: map[string]project.Project{}, keys: map[[sha256.Size]byte]Key{}}
	for _, p := range projects {
		k.projects[p.ID] = p
	}
	if len(projects) == 1 {
		k.only = projects[0].ID
	}
	for _, key := range keys {
		k.keys[key.Sum] = key
	}
	return k
}

const maxKey = 128 // bytes; ours are 36

// The refusals.
var (
	errNoKey      = apperr.New(apperr.Unauthorized, "key_missing", "No key: send it as \"Authorization: Bearer KEY\", as the user name of Basic, or as ?key=.")
	errUnknownKey = apperr.New(apperr.Unauthorized, "key_unknown", "This key is not known here.")
	errMayWrite   = apperr.New(apperr.Forbidden, "key_scope", "This key may only send events; reading takes a read or an admin key.")
	errMayRead    = apperr.New(apperr.Forbidden, "key_scope", "This key may only read; sending events takes a write or an admin key.")
	errHistorical = apperr.New(apperr.Forbidden, "key_scope", "Importing history takes an admin key.").On("historical")
	errForeign    = apperr.New(apperr.Forbidden, "key_scope", "This key belongs to another project.").On("project")
	errNoProject  = apperr.New(apperr.Invalid, "project_required", "This key opens several projects: name one as ?project= or in X-Rollcall-Project.").On("project")
	errNotProject = apperr.New(apperr.NotFound, "project_unknown", "There is no such project.").On("project")
)

// authorize finds the key of a request, checks that it has the scope and returns it with the project it is about.
func (k *Keyring) authorize(c *gin.Context, need Scope) (Key, project.Project, error) {
	key, ok := k.find(c)
	switch {
	case !ok && key.Scope == 0:
		return Key{}, project.Project{}, errNoKey
	case !ok:
		return Key{}, project.Project{}, errUnknownKey
	case key.Scope != need && key.Scope == Write:
		return Key{}, project.Project{}, errMayWrite
	case key.Scope != need && key.Scope == Read:
		return Key{}, project.Project{}, errMayRead
	}
	id := key.Project
	if named := projectOf(c); named != "" && named != id {
		if id != "" {
			return Key{}, project.Project{}, errForeign
		}
		id = named
	}
	if id == "" {
		id = k.only
	}
	if id == "" {
		return Key{}, project.Project{}, errNoProject
	}
	p, ok := k.projects[id]
	if !ok {
		return Key{}, project.Project{}, errNotProject
	}
	return key, p, nil
}

func projectOf(c *gin.Context) string {
	if id := queryValue(c.Request.URL.RawQuery, "project"); id != "" {
		return id
	}
	if h := c.Request.Header["X-Rollcall-Project"]; len(h) > 0 {
		return h[0]
	}
	return ""
}

// find looks up the key of a request. When it is not found, the scope tells a missing key (0) from an unknown one.
func (k *Keyring) find(c *gin.Context) (Key, bool) {
	given := bearer(c.Request.Header.Get("Authorization"))
	if given == "" {
		given = queryValue(c.Request.URL.RawQuery, "key")
	}
	if given == "" {
		return Key{}, false
	}
	if len(given) > maxKey {
		return Key{Scope: Write}, false
	}
	var buf [maxKey]byte
	sum := sha256.Sum256(buf[:copy(buf[:], given)])
	key, ok := k.keys[sum]
	// The map compares hashes, which tell nothing about the key; this makes sure of it whatever the map does.
	if !ok || subtle.ConstantTimeCompare(sum[:], key.Sum[:]) != 1 {
		return Key{Scope: Write}, false
	}
	return key, true
}

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
	case strings.EqualFold(scheme, "Basic") && len(rest) <= 4*maxKey:
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
