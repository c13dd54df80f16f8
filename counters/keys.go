package counters

import (
	"time"

	"github.com/rollcall/rollcall/internal/ident"
)

// Any is the metric that counts every event. In a request it stands for any event; an event of that name is escaped in keys, so the two
// never meet.
const Any = "*"

// Other is the metric of the events whose names came when the project had as many names as it may have. As Any, no event's name is written so.
const Other = "**"

// DefaultNames is how many event names a project has that are counted each by itself.
const DefaultNames = 2000

// metricOf is an event's name as it stands in keys.
func metricOf(event string) string { return string(ident.AppendEscaped(nil, event)) }

// shardOf is the shard of everything a metric has. metric is a result of metricOf, or Any.
func shardOf(shards int, project, metric string) int { return ident.Shard(shards, project, metric) }

// keyBase is the common beginning: rc:{0a}:counters:demo:
func keyBase(shard int, project string) string {
	return "rc:{" + ident.Tag(shard) + "}:counters:" + project + ":"
}

// namesKey holds the names of a project's events, as they were sent: the first DefaultNames that came. SET, in the shard of the project. No TTL.
// Writer: the projection counters.
//
//	rc:{0a}:counters:demo:names
func namesKey(base string) string { return base + "names" }

// homeOf is the shard of what a project has once.
func homeOf(shards int, project string) int { return ident.Shard(shards, project) }

// totalKey holds a metric's PV since the beginning. STRING, a decimal integer. No TTL. Writer: the projection counters.
//
//	rc:{0d}:counters:demo:total:page_view
func totalKey(base, metric string) string { return base + "total:" + metric }

// pvKey holds a metric's PV of one local day. HASH, a field for each local hour that had events, named by period.HourField: "10:00+00:00"; and if
// events came when the day was over, late, how many, and late_at, when the last of them was received, in unix milliseconds. Imports are not
// late. TTL: Keep.Days. Writer: the projection counters.
//
//	rc:{0d}:counters:demo:pv:page_view:2015-05-17
func pvKey(base, metric, day string) string { return base + "pv:" + metric + ":" + day }

// The fields of a PV hash that are no hours.
const (
	fieldLate   = "late"
	fieldLateAt = "late_at"
)

// uvDayKey holds a metric's users of one local day. STRING, a HyperLogLog. TTL: Keep.Days. Writer: the projection counters.
//
//	rc:{0d}:counters:demo:uv:page_view:2015-05-17
func uvDayKey(base, metric, day string) string { return base + "uv:" + metric + ":" + day }

// uvHourKey holds a metric's users of one local hour. STRING, a HyperLogLog. TTL: Keep.Hours. Writer: the projection counters.
//
//	rc:{0d}:counters:demo:uvh:page_view:2015-05-17T10:00+00:00
func uvHourKey(base, metric, hour string) string { return base + "uvh:" + metric + ":" + hour }

// Keys describes every key of this room for docs/KEYS.md.
var Keys = []ident.KeyDoc{
	{
		Pattern: "rc:{SS}:counters:<project>:names", Type: "SET: names of events that are counted each by itself, at most 2,000", TTL: "none",
		Writer: "projection counters", Example: "rc:{0a}:counters:demo:names",
	},
	{
		Pattern: "rc:{SS}:counters:<project>:total:<metric>", Type: "STRING: PV since the beginning", TTL: "none", Writer: "projection counters",
		Example: "rc:{0d}:counters:demo:total:page_view",
	},
	{
		Pattern: "rc:{SS}:counters:<project>:pv:<metric>:<day>", Type: "HASH: PV by local hour; late, late_at: what came when the day was over", TTL: "400 d", Writer: "projection counters",
		Example: "rc:{0d}:counters:demo:pv:page_view:2015-05-17",
	},
	{
		Pattern: "rc:{SS}:counters:<project>:uv:<metric>:<day>", Type: "STRING: HyperLogLog of the day's users", TTL: "400 d", Writer: "projection counters",
		Example: "rc:{0d}:counters:demo:uv:page_view:2015-05-17",
	},
	{
		Pattern: "rc:{SS}:counters:<project>:uvh:<metric>:<hour>", Type: "STRING: HyperLogLog of the hour's users", TTL: "45 d", Writer: "projection counters",
		Example: "rc:{0d}:counters:demo:uvh:page_view:2015-05-17T10:00+00:00",
	},
}

// Keep is how long period keys live, after the later of the period's end and the receive time of the event that wrote them.
type Keep struct {
	Hours time.Duration // sketches of hours; 0 = 45 days
	Days  time.Duration // sketches and counts of days; 0 = 400 days; never shorter than Hours
}

const day = 24 * time.Hour // of keep times: they are spans, not calendar days

// OrDefault fills in what is zero.
func (k Keep) OrDefault() Keep {
	if k.Hours == 0 {
		k.Hours = 45 * day
	}
	if k.Days == 0 {
		k.Days = 400 * day
	}
	k.Days = max(k.Days, k.Hours) // what an hour has, its day must have: see settle
	return k
}
