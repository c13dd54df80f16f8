package ident

import "strings"

// KeyDoc describes one kind of Redis key for docs/KEYS.md. Each room's keys.go lists its own.
type KeyDoc struct {
	Pattern string // with <names> in place of what varies
	Type    string // Redis type and what it holds
	TTL     string // "none" or the rule
	Writer  string
	Example string
}

// KeyTable is the Markdown table of docs/KEYS.md.
func KeyTable(docs []KeyDoc) string {
	var b strings.Builder
	b.WriteString("| key | type | TTL | writer | example |\n|---|---|---|---|---|\n")
	for _, d := range docs {
		b.WriteString("| `" + d.Pattern + "` | " + d.Type + " | " + d.TTL + " | " + d.Writer + " | `" + d.Example + "` |\n")
	}
	return b.String()
}
