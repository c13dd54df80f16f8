// Package drops accounts for everything that a project's clients sent: by minute and by hour, how many events were received, and what became
// of them: accepted, duplicate, a bot's, or rejected and why. It counts from the journal, so it is exact through crashes and replays.
package drops

import (
	"strings"
	"time"

	"github.com/rollcall/rollcall/internal/ident"
)

// Name is the projection's name in the meta keys.
const Name = "drops"

// shardOf is the shard of everything a project has.
func shardOf(shards int, project string) int { return ident.Shard(shards, project, Name) }

// keyBase is the common beginning: rc:{0a}:drops:demo:
func keyBase(shard int, project string) string {
	return "rc:{" + ident.Tag(shard) + "}:drops:" + project + ":"
}

// utcHour is the layout of an hour in minuteKey.
const utcHour = "2006-01-02T15"

// minuteKey holds what came in the minutes of an hour, in UTC. HASH, a field for each minute and kind: "07:accepted". TTL: 3 days after the
// hour. Writer: the projection drops.
//
//	rc:{0d}:drops:demo:min:2026-11-30T08
func minuteKey(base string, hour time.Time) string {
	return base + "min:" + hour.UTC().Format(utcHour)
}

// hourKey holds what came in the hours of a local day. HASH, a field for each hour (period.HourField) and kind: "10:00+00:00:accepted". TTL:
// 45 days after the day. Writer: the projection drops.
//
//	rc:{0d}:drops:demo:hour:2026-11-30
func hourKey(base, day string) string { return base + "hour:" + day }

// The kinds of a field; an event that was rejected has rejectedKind and its code.
const (
	acceptedKind   = "accepted"
	duplicatesKind = "duplicates"
	botsKind       = "bots"
	rejectedKind   = "rejected."
)

// fieldOf is a hash's field; at is the minute or the hour. No kind has a colon.
func fieldOf(at, kind string) string { return at + ":" + kind }

func cutField(field string) (at, kind string, ok bool) {
	i := strings.LastIndexByte(field, ':')
	if i < 0 {
		return "", "", false
	}
	return field[:i], field[i+1:], true
}

// How long keys live after the later of their period's end and the receive time of the record that wrote them.
const (
	KeepMinutes = 3 * 24 * time.Hour
	KeepHours   = 45 * 24 * time.Hour
)

// Keys describes every key of this room for docs/KEYS.md.
var Keys = []ident.KeyDoc{
	{
		Pattern: "rc:{SS}:drops:<project>:min:<utc hour>", Type: "HASH: events by minute and what became of them, `07:accepted`", TTL: "3 d", Writer: "projection drops",
		Example: "rc:{0d}:drops:demo:min:2026-11-30T08",
	},
	{
		Pattern: "rc:{SS}:drops:<project>:hour:<day>", Type: "HASH: events by local hour and what became of them, `10:00+00:00:rejected.too_late`", TTL: "45 d", Writer: "projection drops",
		Example: "rc:{0d}:drops:demo:hour:2026-11-30",
	},
}
