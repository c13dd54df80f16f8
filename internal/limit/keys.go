package limit

import (
	"time"

	"github.com/rollcall/rollcall/internal/ident"
)

// windowKey holds the calls that passed within one window, oldest first: two elements each, the time in unix ms and what stands for the
// event id (see idWord), 0 if there is none. LIST. TTL: the window, after the last call that passed. Writer: sliding.lua.
// Windows of different spans never share a key.
//
//	rc:{08}:limit:demo:freq:$signin:u42:d
func windowKey(shards int, c *Call) string {
	b := make([]byte, 0, 128)
	b = append(b, c.Project...)
	b = append(b, ':')
	b = ident.AppendEscaped(b, c.Kind)
	for _, name := range c.Name {
		b = append(b, ':')
		b = ident.AppendEscaped(b, name)
	}
	b = append(b, ':')
	b = append(b, spanText(c.Per.Truncate(time.Millisecond))...)
	thing := string(b)
	return "rc:{" + ident.Tag(ident.Shard(shards, thing)) + "}:limit:" + thing
}

// Keys describes every key of this package for docs/KEYS.md.
var Keys = []ident.KeyDoc{
	{
		Pattern: "rc:{SS}:limit:<project>:<kind>:<name…>:<window>", Type: "LIST: time in unix ms and id word of each call that passed",
		TTL: "the window, after the last call that passed", Writer: "nodes that take requests",
		Example: "rc:{08}:limit:demo:freq:$signin:u42:d",
	},
}
