// Package counters counts events (PV) and distinct users (UV) by hour, day and any range.
package counters
