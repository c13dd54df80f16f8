package web

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
)

const oneEvent = `{"event":"page_view","user":"u42","ts":"2026-11-30T08:00:00+08:00","id":"8f1c2a9d"}`

// nowhere is an answer that costs nothing.
type nowhere struct{ h http.Header }

func (n *nowhere) Header() http.Header         { return n.h }
func (n *nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n *nowhere) WriteHeader(int)             {}

func benchmark(b *testing.B, h http.Handler) {
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		body := strings.NewReader("")
		r, err := http.NewRequest("POST", "/v1/events?key=rcw_w", body)
		if err != nil {
			b.Error(err)
			return
		}
		w := &nowhere{http.Header{}}
		for pb.Next() {
			body.Reset(oneEvent)
			r.ContentLength = int64(len(oneEvent))
			h.ServeHTTP(w, r)
		}
	})
}

// Everything around Accept: routing, key, metrics, answer. Ingest only reads the body.
func BenchmarkEventsRoute(b *testing.B) { benchmark(b, setUp(b, slog.LevelInfo).engine) }

// The floor: a gin handler that decodes one event with the standard library and answers.
func BenchmarkGinDecode(b *testing.B) {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.POST("/v1/events", func(c *gin.Context) {
		var v struct{ Event, User, TS, ID string }
		if err := json.NewDecoder(c.Request.Body).Decode(&v); err != nil {
			c.Status(http.StatusBadRequest)
			return
		}
		c.JSON(http.StatusAccepted, gin.H{"received": 1, "accepted": 1})
	})
	benchmark(b, e)
}
