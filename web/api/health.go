package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/gin-gonic/gin"
)

// Part is one part that readiness looks at.
type Part struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"` // what is wrong, or how far it is
}

// Ready reports every part. It is asked by anybody, so it must be cheap.
type Ready func(context.Context) []Part

// Healthz is GET /healthz: the process answers.
func Healthz(c *gin.Context) error {
	send(c, http.StatusOK, jsonType, []byte(`{"ok":true}`+"\n"))
	return nil
}

// Readyz returns the handler of GET /readyz: 200 when every part is well, 503 naming those that are down otherwise. With
// ?for=ingest only the parts that taking events needs decide: Redis may be away, and a load balancer should go on sending
// beacons here.
func Readyz(ready Ready, forIngest func(part string) bool, stopping func() bool) Handler {
	return func(c *gin.Context) error {
		answer := struct {
			Ready    bool   `json:"ready"`
			Stopping bool   `json:"stopping,omitempty"`
			Parts    []Part `json:"parts"`
		}{Ready: true, Stopping: stopping(), Parts: ready(c.Request.Context())}
		ingestOnly := queryValue(c.Request.URL.RawQuery, "for") == "ingest"
		for _, p := range answer.Parts {
			if !p.OK && (!ingestOnly || forIngest(p.Name)) {
				answer.Ready = false
			}
		}
		answer.Ready = answer.Ready && !answer.Stopping
		status := http.StatusOK
		if !answer.Ready {
			status = http.StatusServiceUnavailable
		}
		body, err := json.Marshal(answer)
		if err != nil {
			return err
		}
		send(c, status, jsonType, append(body, '\n'))
		return nil
	}
}

// Index answers GET /: what is here.
func Index(c *gin.Context, version string, urls []string) error {
	return sendJSON(c, http.StatusOK, struct {
		Service string   `json:"service"`
		Version string   `json:"version"`
		URLs    []string `json:"urls"`
	}{"rollcall", version, urls})
}
