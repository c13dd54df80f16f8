// Package apperr is the error that a client may see: a stable code, a public sentence and a private cause.
//
// It is made where a rule breaks. Only web turns a Kind into an HTTP status.
package apperr

import (
	"errors"
	"fmt"
	"time"
)

// Kind is the class of a fault; web maps each to one HTTP status.
type Kind uint8

// The kinds. Internal is the zero value: an error that nobody classified is our fault, not the client's.
const (
	Internal     Kind = iota // 500
	Malformed                // 400: the body or a parameter cannot be read
	Unauthorized             // 401: no key, or an unknown one
	Forbidden                // 403: the key lacks the scope
	NotFound                 // 404
	Conflict                 // 409
	TooLarge                 // 413
	Unsupported              // 415
	Invalid                  // 422: readable, but a rule is broken
	RateLimited              // 429
	Unavailable              // 503: try again after RetryAfter
)

// Error is one public fault.
type Error struct {
	Kind   Kind
	Code   string // stable, snake_case: clients switch on it
	Detail string // one public sentence that names the limit and the remedy
	Field  string // the offending field or parameter, if there is one
	Limit  string // the limit that was passed, with its unit
	Option string // the configuration option that changes the limit

	RetryAfter time.Duration // for RateLimited and Unavailable
	cause      error
}

// New makes an error of a kind. detail is shown to the client: it never holds secrets or internals.
func New(kind Kind, code, detail string, args ...any) *Error {
	if len(args) > 0 {
		detail = fmt.Sprintf(detail, args...)
	}
	return &Error{Kind: kind, Code: code, Detail: detail}
}

// Error returns code, detail and cause, for logs.
func (e *Error) Error() string {
	s := e.Code + ": " + e.Detail
	if e.cause != nil {
		s += ": " + e.cause.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// With returns a copy that wraps a private cause.
func (e *Error) With(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

// On returns a copy that names the field.
func (e *Error) On(field string) *Error {
	c := *e
	c.Field = field
	return &c
}

// Over returns a copy that names the limit and the option that changes it.
func (e *Error) Over(limit, option string) *Error {
	c := *e
	c.Limit, c.Option = limit, option
	return &c
}

// After returns a copy that asks the client to wait.
func (e *Error) After(d time.Duration) *Error {
	c := *e
	c.RetryAfter = d
	return &c
}

// As returns the public error inside err, or a generic Internal one that wraps err.
func As(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return (&Error{Kind: Internal, Code: "internal", Detail: "An unexpected fault; it has been logged under this request id."}).With(err)
}
