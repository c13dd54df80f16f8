package projection

import (
	"runtime"
	"testing"
	"weak"
)

// A commit that is in can be collected, however long the epoch goes on.
func TestCommitsDoNotKeepEachOther(t *testing.T) {
	e := &epoch{p: &Projector{o: Options{Shards: 2}}, placed: [][]place{make([]place, 2)}}
	var old []weak.Pointer[commit]
	for range 10 {
		c := e.newCommit()
		close(c.done)
		old = append(old, weak.Make(c))
		e.latest = c
	}
	next := e.newCommit()
	runtime.GC()
	alive := 0
	for _, p := range old {
		if p.Value() != nil {
			alive++
		}
	}
	runtime.KeepAlive(next)
	if alive > 1 {
		t.Fatalf("%d of %d commits are alive, want at most the latest", alive, len(old))
	}
	runtime.KeepAlive(e)
}
