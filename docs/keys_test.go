// Package docs holds the tests that keep the documents true.
package docs

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/internal/ident"
	"github.com/rollcall/rollcall/internal/projection"
)

var update = flag.Bool("update", false, "write the table into KEYS.md")

// TestKeys compares the table in KEYS.md with the keys that the rooms describe.
func TestKeys(t *testing.T) {
	keys := slices.Concat([]ident.KeyDoc{
		{
			Pattern: "rc:{SS}:meta:<projection>", Type: "HASH: offset, sum, asof, epoch, journal, dirty", TTL: "none", Writer: "projector",
			Example: projection.MetaKey(13, counters.Name),
		},
		{
			Pattern: projection.LockKey, Type: "STRING: token of the active projector", TTL: projection.LockTTL.String() + ", renewed", Writer: "projector",
			Example: projection.LockKey,
		},
	}, counters.Keys)
	b, err := os.ReadFile("KEYS.md")
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "by `go test ./docs -update` -->\n", "<!-- end of table -->"
	head, rest, ok := strings.Cut(string(b), begin)
	table, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("KEYS.md has lost the marks around its table")
	}
	want := ident.KeyTable(keys)
	if *update {
		if err := os.WriteFile("KEYS.md", []byte(head+begin+want+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table != want {
		t.Errorf("the table in KEYS.md is\n%s\nthe rooms describe\n%s\nrun go test ./docs -update", table, want)
	}
}
