package projection

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Unguarded takes the guard out of the commit script until the test ends: what the tests of the guard must catch.
func Unguarded(t *testing.T) {
	t.Helper()
	head, rest, ok := strings.Cut(commitSource, "-- guard begin\n")
	_, tail, ok2 := strings.Cut(rest, "-- guard end\n")
	if !ok || !ok2 {
		t.Fatal("commit.lua has lost the marks around its guard")
	}
	guarded := commitScript
	commitScript = redis.NewScript(head + tail)
	t.Cleanup(func() { commitScript = guarded })
}

// AppendChunks is the work of Projector on one record.
var AppendChunks = appendChunks
