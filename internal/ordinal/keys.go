package ordinal

import (
	"strconv"

	"github.com/rollcall/rollcall/internal/ident"
)

// keyBase is the common beginning: rc:{0a}:ordinal:demo:
func keyBase(shard int, project string) string {
	return "rc:{" + ident.Tag(shard) + "}:ordinal:" + project + ":"
}

// countKey holds how many users of the project the shard has; the next one gets this ordinal. STRING, a decimal integer. No TTL. Writer: the
// projection ordinal.
//
//	rc:{0a}:ordinal:demo:n
func countKey(base string) string { return base + "n" }

// bucketKey holds users and their ordinals. HASH, field: the user, a canonical UUID as 0xff and its 16 bytes; value: the ordinal in decimal.
// No TTL. Writer: the projection ordinal.
//
//	rc:{0a}:ordinal:demo:u:0:17
func bucketKey(base string, level int, bucket uint32) string {
	return base + "u:" + strconv.Itoa(level) + ":" + strconv.FormatUint(uint64(bucket), 10)
}

// longKey holds the users of more than 60 bytes. As bucketKey.
//
//	rc:{0a}:ordinal:demo:long:0:17
func longKey(base string, level int, bucket uint32) string {
	return base + "long:" + strconv.Itoa(level) + ":" + strconv.FormatUint(uint64(bucket), 10)
}

// keyOf is the bucket of a user.
func keyOf(base string, level int, tag uint32, user string) string {
	if len(user) > maxField {
		return longKey(base, level, bucketOf(level, tag))
	}
	return bucketKey(base, level, bucketOf(level, tag))
}

// tagKey holds the tag of each ordinal of a segment, by which its bucket is found, and there its name. STRING, 4 bytes an ordinal, little-endian.
// No TTL. Writer: the projection ordinal.
//
//	rc:{0a}:ordinal:demo:tag:0
func tagKey(base string, segment uint32) string {
	return base + "tag:" + strconv.FormatUint(uint64(segment), 10)
}

// Keys describes every key of this room for docs/KEYS.md.
var Keys = []ident.KeyDoc{
	{
		Pattern: "rc:{SS}:ordinal:<project>:n", Type: "STRING: users of the project in the shard; the next ordinal", TTL: "none", Writer: "projection ordinal",
		Example: "rc:{0a}:ordinal:demo:n",
	},
	{
		Pattern: "rc:{SS}:ordinal:<project>:u:<level>:<bucket>", Type: "HASH: ordinal by user (a UUID as 0xff and 16 bytes)", TTL: "none",
		Writer: "projection ordinal", Example: "rc:{0a}:ordinal:demo:u:0:17",
	},
	{
		Pattern: "rc:{SS}:ordinal:<project>:long:<level>:<bucket>", Type: "HASH: the same of users of more than 60 bytes", TTL: "none",
		Writer: "projection ordinal", Example: "rc:{0a}:ordinal:demo:long:0:17",
	},
	{
		Pattern: "rc:{SS}:ordinal:<project>:tag:<segment>", Type: "STRING: 4 bytes an ordinal, which name its bucket", TTL: "none",
		Writer: "projection ordinal", Example: "rc:{0a}:ordinal:demo:tag:0",
	},
}
