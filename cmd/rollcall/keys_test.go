package main

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/counters/breakdown"
	"github.com/rollcall/rollcall/counters/users"
	"github.com/rollcall/rollcall/ingest/drops"
	"github.com/rollcall/rollcall/internal/ident"
	"github.com/rollcall/rollcall/internal/limit"
	"github.com/rollcall/rollcall/internal/ordinal"
	"github.com/rollcall/rollcall/internal/projection"
)

var updateKeys = flag.Bool("update-keys", false, "write the table into docs/KEYS.md")

// documentedKeys are all keys that rollcall writes.
func documentedKeys() []ident.KeyDoc {
	return slices.Concat([]ident.KeyDoc{
		{
			Pattern: "rc:{SS}:meta:<projection>", Type: "HASH: offset, sum, asof, epoch, journal, begun, ended, dirty", TTL: "none", Writer: "projector",
			Example: projection.MetaKey(13, counters.Name),
		},
		{
			Pattern: projection.LockKey, Type: "STRING: token of the active projector", TTL: projection.LockTTL.String() + ", renewed", Writer: "projector",
			Example: projection.LockKey,
		},
		{
			Pattern: installKey, Type: "HASH: shards, journal, zone:<project>", TTL: "none", Writer: "serve, at the first start",
			Example: installKey,
		},
	}, ordinal.Keys, counters.Keys, users.Keys, breakdown.Keys, drops.Keys, limit.Keys)
}

// TestKeys compares the table in docs/KEYS.md with the keys that the rooms describe.
func TestKeys(t *testing.T) {
	const keysDoc = "../../docs/KEYS.md"
	keys := documentedKeys()
	b, err := os.ReadFile(keysDoc)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "-->\n", "<!-- end of table -->"
	head, rest, ok := strings.Cut(string(b), begin)
	table, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("docs/KEYS.md has lost the marks around its table")
	}
	want := ident.KeyTable(keys)
	if *updateKeys {
		if err := os.WriteFile(keysDoc, []byte(head+begin+want+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table != want {
		t.Errorf("the table in docs/KEYS.md is\n%s\nthe rooms describe\n%s\nrun go test ./cmd/rollcall -run TestKeys -update-keys", table, want)
	}
}
