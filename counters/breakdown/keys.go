package breakdown

import (
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/rollcall/rollcall/internal/ident"
)

// keyBase is the common beginning: rc:{0d}:breakdown:demo:
func keyBase(shard int, project string) string {
	return "rc:{" + ident.Tag(shard) + "}:breakdown:" + project + ":"
}

// dayKey holds PV by value of a local day. HASH, field: a value (=/book/7), other or none. It also is the list of the day's values, of which
// there are at most Top. TTL: Keep.Days. Writer: the projection breakdowns.
//
//	rc:{0d}:breakdown:demo:day:page_view:page:2015-05-17
func dayKey(base, metric, prop, day string) string {
	return base + "day:" + metric + ":" + prop + ":" + day
}

// hourKey holds PV by value of a local hour. As dayKey. TTL: Keep.Hours. Writer: the projection breakdowns.
//
//	rc:{0d}:breakdown:demo:hour:page_view:page:2015-05-17T10:00+00:00
func hourKey(base, metric, prop, hour string) string {
	return base + "hour:" + metric + ":" + prop + ":" + hour
}

// uvKey holds the users of a value on a local day. STRING, a HyperLogLog. A long value stands there as a hash of 128 bits. TTL: Keep.Users.
// Writer: the projection breakdowns.
//
//	rc:{0d}:breakdown:demo:uv:page_view:page:2015-05-17:=%2fbook%2f7
func uvKey(base, metric, prop, day, field string) string {
	name := string(ident.AppendEscaped(nil, field))
	if len(name) > maxInName {
		h := xxh3.HashString128(field)
		name = fmt.Sprintf("~%016x%016x", h.Hi, h.Lo) // no field begins so
	}
	return base + "uv:" + metric + ":" + prop + ":" + day + ":" + name
}

// sinceKey tells since when each event has been broken down by a prop. HASH, in the shard of the project; field: event:prop, and the empty
// string for the project itself; value: the time in unix milliseconds when the first event was received that could be counted. No TTL. Writer:
// the projection breakdowns.
//
//	rc:{0d}:breakdown:demo:since
func sinceKey(base string) string { return base + "since" }

func sinceField(metric, prop string) string { return metric + ":" + prop }

// Keys describes every key of this room for docs/KEYS.md.
var Keys = []ident.KeyDoc{
	{
		Pattern: "rc:{SS}:breakdown:<project>:day:<event>:<prop>:<day>", Type: "HASH: PV by value, and the day's values", TTL: "400 d",
		Writer: "projection breakdowns", Example: "rc:{0d}:breakdown:demo:day:page_view:page:2015-05-17",
	},
	{
		Pattern: "rc:{SS}:breakdown:<project>:hour:<event>:<prop>:<hour>", Type: "HASH: PV by value", TTL: "45 d",
		Writer: "projection breakdowns", Example: "rc:{0d}:breakdown:demo:hour:page_view:page:2015-05-17T10:00+00:00",
	},
	{
		Pattern: "rc:{SS}:breakdown:<project>:uv:<event>:<prop>:<day>:<value>", Type: "STRING: HyperLogLog of the value's users", TTL: "100 d",
		Writer: "projection breakdowns", Example: "rc:{0d}:breakdown:demo:uv:page_view:page:2015-05-17:=%2fbook%2f7",
	},
	{
		Pattern: "rc:{SS}:breakdown:<project>:since", Type: "HASH: since when an event is broken down by a prop, in unix ms", TTL: "none",
		Writer: "projection breakdowns", Example: "rc:{0d}:breakdown:demo:since",
	},
}
