package api

import (
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/rollcall/rollcall/internal/project"
)

// Header values of CORS, made once.
var (
	varyOrigin    = []string{"Origin"}
	anyOrigin     = []string{"*"}
	yes           = []string{"true"}
	allowMethods  = []string{"GET, POST"}
	allowHeaders  = []string{"content-type, content-encoding, authorization, x-rollcall-project"}
	exposeHeaders = []string{"retry-after, ratelimit-limit, ratelimit-remaining, ratelimit-reset, x-request-id, x-rollcall-code"}
	maxAge        = []string{"86400"}
)

// CORS lets pages of other origins read the answers of a handler for beacons, as the project's origins (or http.origins) say. That the
// events of a page are taken does not depend on it: a browser sends a plain beacon in any case.
func (a *API) CORS(h Handler) Handler {
	return func(c *gin.Context) error {
		a.allowOrigin(c, secretOf(c))
		return h(c)
	}
}

// allowOrigin sets the headers for a page's request with a key. That was not judged yet: whom it belongs to only says which list to
// look at.
func (a *API) allowOrigin(c *gin.Context, secret string) {
	origin := c.Request.Header["Origin"]
	if len(origin) != 1 {
		return
	}
	h := c.Writer.Header()
	for _, name := range [...]string{"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Expose-Headers"} {
		delete(h, name) // set before the key was known
	}
	list := a.o.Origins
	if p := a.projectOfKey(secret); p != nil && len(p.Origins) > 0 {
		list = p.Origins
	}
	allow(h, list, origin)
}

// Preflight is OPTIONS of a route for beacons. It carries no key unless that stands in the URL: then any project's origin is good
// enough here, and the answer to the request itself decides.
func (a *API) Preflight(c *gin.Context) error {
	h := c.Writer.Header()
	origin := c.Request.Header["Origin"]
	if len(origin) == 1 && c.Request.Header["Access-Control-Request-Method"] != nil {
		ok := false
		if p := a.projectOfKey(secretOf(c)); p != nil && len(p.Origins) > 0 {
			ok = allow(h, p.Origins, origin)
		} else if ok = allow(h, a.o.Origins, origin); !ok {
			for _, p := range a.o.Directory.Projects() {
				if ok = allow(h, p.Origins, origin); ok {
					break
				}
			}
		}
		if ok {
			h["Access-Control-Allow-Methods"] = allowMethods
			h["Access-Control-Allow-Headers"] = allowHeaders
			h["Access-Control-Max-Age"] = maxAge
		}
	}
	h["Vary"] = varyOrigin
	c.Status(http.StatusNoContent)
	c.Writer.WriteHeaderNow()
	return nil
}

// allow sets the headers for an origin that is on the list. One that is named there is echoed and may send credentials, as
// navigator.sendBeacon always does; any other, where * stands for it, and null, which every sandboxed page has, may not.
func allow(h http.Header, list, origin []string) bool {
	h["Vary"] = varyOrigin
	switch {
	case slices.Contains(list, origin[0]) && origin[0] != "*":
		h["Access-Control-Allow-Origin"] = origin
		if origin[0] != "null" {
			h["Access-Control-Allow-Credentials"] = yes
		}
	case slices.Contains(list, "*"):
		h["Access-Control-Allow-Origin"] = anyOrigin
	default:
		return false
	}
	h["Access-Control-Expose-Headers"] = exposeHeaders
	return true
}

func (a *API) projectOfKey(secret string) *project.Project {
	if secret == "" {
		return nil
	}
	return a.o.Directory.ProjectOfKey(secret)
}
