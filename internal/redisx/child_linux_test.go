package redisx

import (
	"testing"

	"github.com/rollcall/rollcall/internal/realtest"
)

// Other systems have no parent-death signal; TestManaged_OrphanIsAskedToEnd is for them.
func TestManaged_ChildDiesWithItsParent(t *testing.T) {
	dir := t.TempDir()
	pid := killedParent(t, dir)
	realtest.Eventually(t, patience, func() error { return gone(pid) })
	wantKey(t, open(t, Options{Dir: dir}))
}
