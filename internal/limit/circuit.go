package limit

import (
	"sync"
	"time"
)

// hold is how long nobody asks a store that did not answer.
const hold = time.Second

// circuit keeps callers from waiting, one after another, for a store that does not answer. After a failure nobody asks for hold; then one
// caller at a time does, until one gets an answer.
type circuit struct {
	mu      sync.Mutex
	cause   error // of the failure that opened it; nil = closed
	failed  time.Time
	probing bool
}

// pass is the permission to ask.
type pass struct{ probe bool }

// enter asks for permission; an error is the cause of the failure that stands against it. Every pass must be given to leave.
func (c *circuit) enter(now time.Time) (pass, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		return pass{}, nil
	}
	// A clock that was set back must not keep the circuit open.
	if since := now.Sub(c.failed); c.probing || (0 <= since && since < hold) {
		return pass{}, c.cause
	}
	c.probing = true
	return pass{probe: true}, nil
}

// leave says what came of it: whether the store answered, or the failure; neither when the caller gave up first.
func (c *circuit) leave(p pass, now time.Time, answered bool, failure error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.probe {
		c.probing = false
	}
	switch {
	case failure != nil:
		c.cause, c.failed = failure, now
	case answered && p.probe:
		c.cause = nil
	}
}

// open is the cause of the failure that opened the circuit, nil while it is closed.
func (c *circuit) open() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}
