package api

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/rollcall/rollcall/internal/apperr"
)

// Status is the one place where the kind of a fault becomes an HTTP status.
func Status(k apperr.Kind) int {
	switch k {
	case apperr.Malformed:
		return http.StatusBadRequest
	case apperr.Unauthorized:
		return http.StatusUnauthorized
	case apperr.Forbidden:
		return http.StatusForbidden
	case apperr.NotFound:
		return http.StatusNotFound
	case apperr.Conflict:
		return http.StatusConflict
	case apperr.TooLarge:
		return http.StatusRequestEntityTooLarge
	case apperr.Unsupported:
		return http.StatusUnsupportedMediaType
	case apperr.Invalid:
		return http.StatusUnprocessableEntity
	case apperr.RateLimited:
		return http.StatusTooManyRequests
	case apperr.Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// problem is RFC 9457's document with rollcall's members. Its type is about:blank: the code tells what happened.
type problem struct {
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Code      string `json:"code"`
	Detail    string `json:"detail"`
	Field     string `json:"field,omitempty"`
	Limit     string `json:"limit,omitempty"`
	Option    string `json:"option,omitempty"`
	RequestID string `json:"request_id"`
}

// Problem answers with a fault. The private cause is never shown.
func Problem(c *gin.Context, status int, e *apperr.Error, requestID string) {
	body, err := json.Marshal(problem{http.StatusText(status), status, e.Code, e.Detail, e.Field, e.Limit, e.Option, requestID})
	if err != nil {
		panic(err) // strings and an int always marshal
	}
	h := c.Writer.Header()
	h["X-Request-Id"] = []string{requestID}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	if e.RetryAfter > 0 {
		h["Retry-After"] = []string{seconds(e.RetryAfter)}
	}
	if status == http.StatusUnauthorized {
		h["Www-Authenticate"] = []string{`Bearer realm="rollcall"`}
	}
	if c.FullPath() == PixelPath {
		sendPixel(c, status, e.Code)
		return
	}
	send(c, status, problemType, append(body, '\n'))
}

func byteCount(n int64) string {
	if n%(1<<20) == 0 {
		return strconv.FormatInt(n>>20, 10) + " MiB"
	}
	return strconv.FormatInt(n, 10) + " bytes"
}
