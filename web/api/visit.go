package api

import (
	"net/netip"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rollcall/rollcall/ingest"
	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/project"
	"github.com/rollcall/rollcall/internal/visitor"
)

// visit is who is behind one request for events, looked at only as far as its project asks.
type visit struct {
	a    *API
	c    *gin.Context
	who  Caller
	addr netip.Addr // once known
}

var errSalt = apperr.New(apperr.Unavailable, "salt_unavailable",
	"Visitors without a user can't be told apart now: the journal's key-value store does not answer. Nothing was stored; send again.").After(time.Second)

// identify tells bots from people, and names the user of events that have none, as the project wishes.
func (v *visit) identify(r *ingest.Request, browser bool) error {
	p, h := v.who.Project, v.c.Request.Header
	v.mark()
	agent := h.Get("User-Agent")
	// Whoever holds an admin key tells of others: their agents are not known here.
	if p.Bots == project.BotsFlag && v.who.Key.Scope != project.Admin {
		// Not Sec-Fetch-Mode: the fetch of Node sends it as well.
		r.Bot = v.a.o.Bots.Is(agent, browser || h["Origin"] != nil || h["Sec-Fetch-Site"] != nil)
	}
	if p.Anonymous == project.AnonymousNone {
		return nil
	}
	salt, err := v.salt(p)
	if err != nil {
		return errSalt.With(err)
	}
	addr := v.address()
	r.Anonymous = func() string { return visitor.Anonymous(salt, addr, agent) }
	return nil
}

func (v *visit) salt(p *project.Project) ([32]byte, error) {
	ctx := v.c.Request.Context()
	if p.Anonymous == project.AnonymousStable {
		return v.a.o.Salts.Stable(ctx, p.ID)
	}
	day := v.a.o.Clock.Now().In(p.Location).Format(time.DateOnly)
	return v.a.o.Salts.Daily(ctx, p.ID, day)
}

// mark looks at a forwarded address even if nobody asks for it: one from a proxy that is not trusted is a set-up error that should
// tell on itself.
func (v *visit) mark() {
	if v.c.Request.Header["X-Forwarded-For"] != nil {
		v.address()
	}
}

// address is where the client is: the peer, or what trusted proxies say.
func (v *visit) address() netip.Addr {
	if !v.addr.IsValid() {
		at := v.a.o.Proxies.Address(v.c.Request.RemoteAddr, v.c.Request.Header["X-Forwarded-For"])
		v.addr = at.IP
		v.a.metrics.forwarded[at.Mark].Inc()
		if at.Mark == visitor.Untrusted && v.a.warned.now() {
			v.a.o.Log.Warn("X-Forwarded-For from an untrusted peer is ignored: all its visitors look like one. If it is your proxy, name it in http.trusted_proxies",
				"peer", v.c.Request.RemoteAddr)
		}
	}
	return v.addr
}
