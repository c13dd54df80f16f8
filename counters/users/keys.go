package users

import (
	"strconv"

	"github.com/rollcall/rollcall/internal/ident"
)

// keyBase is the common beginning: rc:{0a}:users:demo:
func keyBase(shard int, project string) string {
	return "rc:{" + ident.Tag(shard) + "}:users:" + project + ":"
}

// setKey holds the users of a metric's local day: on (Active) or first (First). STRING, see set.go. TTL: Keep.Days. Writer: the projection users.
//
//	rc:{0a}:users:demo:on:page_view:2015-05-17
func setKey(base string, kind Kind, metric, day string) string {
	return base + [...]string{Active: "on:", First: "first:"}[kind] + metric + ":" + day
}

// beganKey holds the first day of each user of a segment of ordinals. STRING, 2 bytes an ordinal, little-endian, a day's number or 0, and a byte
// of padding. No TTL. Writer: the projection users.
//
//	rc:{0a}:users:demo:began:page_view:0
func beganKey(base, metric string, segment uint32) string {
	return base + "began:" + metric + ":" + strconv.FormatUint(uint64(segment), 10)
}

// sinceKey tells since when each metric has sets. HASH, in the shard of the project; field: a metric, or the empty string for the project itself;
// value: the time in unix milliseconds when the first event was received of which the sets could know. No TTL. Writer: the projection users.
//
//	rc:{0a}:users:demo:since
func sinceKey(base string) string { return base + "since" }

// homeOf is the shard of what a project has once.
func homeOf(shards int, project string) int { return ident.Shard(shards, project) }

// Keys describes every key of this room for docs/KEYS.md.
var Keys = []ident.KeyDoc{
	{
		Pattern: "rc:{SS}:users:<project>:on:<metric>:<day>", Type: "STRING: the day's users, a roaring bitmap of ordinals and a tail of later ones",
		TTL: "400 d", Writer: "projection users", Example: "rc:{0a}:users:demo:on:page_view:2015-05-17",
	},
	{
		Pattern: "rc:{SS}:users:<project>:first:<metric>:<day>", Type: "STRING: of those, who never came on an earlier day",
		TTL: "400 d", Writer: "projection users", Example: "rc:{0a}:users:demo:first:page_view:2015-05-17",
	},
	{
		Pattern: "rc:{SS}:users:<project>:began:<metric>:<segment>", Type: "STRING: 2 bytes an ordinal, the user's first day", TTL: "none",
		Writer: "projection users", Example: "rc:{0a}:users:demo:began:page_view:0",
	},
	{
		Pattern: "rc:{SS}:users:<project>:since", Type: "HASH: since when a metric has sets, in unix ms", TTL: "none", Writer: "projection users",
		Example: "rc:{0a}:users:demo:since",
	},
}
