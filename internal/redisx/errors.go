package redisx

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrUnfit is inside every error that waiting does not heal: a URL that cannot be read, a refused login, a server that is too old
// or would evict counts. The error's text names the remedy.
var ErrUnfit = errors.New("unfit Redis")

// unfitError is an ErrUnfit with its own text.
type unfitError struct{ text string }

func (e unfitError) Error() string        { return e.text }
func (e unfitError) Is(target error) bool { return target == ErrUnfit }

// IsReadOnly tells that the server is a replica and has changed nothing; the connection is dropped, the next one may find the
// new master.
func IsReadOnly(err error) bool { return replied(err, "READONLY") }

// IsOOM tells that the server has reached maxmemory and refused to write. A script that was refused at its first write has
// changed nothing; one that had already written, or deleted, goes on to its end (see TestRD04).
func IsOOM(err error) bool { return replied(err, "OOM") }

// IsUnknown tells that no reply came: a lost connection, a timeout, the caller's own deadline. The command may have been carried
// out, may be later, or never; only what is stored tells. Errors that the server has answered are known.
func IsUnknown(err error) bool {
	var reply redis.Error
	return err != nil && !errors.As(err, &reply)
}

// replied tells whether the server answered with this error code. Before 7.0 an error inside a script comes wrapped in the
// script's own: "ERR Error running script (call to f_…): @user_script:1: -OOM command not allowed …".
func replied(err error, code string) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	text := reply.Error()
	return strings.HasPrefix(text, code+" ") || (strings.HasPrefix(text, "ERR Error running script") && strings.Contains(text, ": -"+code+" "))
}
