package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/journal"
	"github.com/rollcall/rollcall/internal/obs"
	"github.com/rollcall/rollcall/internal/projection"
	"github.com/rollcall/rollcall/web/api"
)

const (
	partJournal   = "journal"
	partRedis     = "redis"
	partProjector = "projector"
)

const (
	probeKeep  = 500 * time.Millisecond // anybody may ask; the parts are asked at most this often
	probeLimit = time.Second
	maxLag     = 5 * time.Minute // of numbers behind the journal, before readiness goes red; taking events does not look at it
)

// probe keeps the last answer.
type probe struct {
	mu    sync.Mutex
	at    time.Time
	parts []api.Part
}

// ready asks journal, Redis and projector how they are.
func (n *node) ready(ctx context.Context) []api.Part {
	n.probe.mu.Lock()
	defer n.probe.mu.Unlock()
	if time.Since(n.probe.at) < probeKeep {
		return n.probe.parts
	}
	// The answer is for everybody who asks soon: the one who happened to cause it may leave.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeLimit)
	defer cancel()
	last, part := n.readyJournal(ctx)
	n.probe.parts = []api.Part{part, n.readyRedis(ctx), n.readyProjector(last)}
	n.probe.at = time.Now()
	return n.probe.parts
}

func (n *node) readyJournal(ctx context.Context) (last uint64, p api.Part) {
	p.Name = partJournal
	_, last, err := n.journal.Bounds(ctx)
	switch {
	case err != nil:
		p.Detail = err.Error()
	case n.journal.Stats().Full:
		p.Detail = "full: new events are refused (journal.max_bytes, journal.min_free)"
	default:
		p.OK = true
	}
	return last, p
}

func (n *node) readyRedis(ctx context.Context) api.Part {
	p := api.Part{Name: partRedis}
	if err := n.redis.Commit.Ping(ctx).Err(); err != nil {
		p.Detail = err.Error()
	} else {
		p.OK = true
	}
	return p
}

func (n *node) readyProjector(last uint64) api.Part {
	p := api.Part{Name: partProjector}
	if err := n.mismatch.Load(); err != nil {
		p.Detail = "waiting: " + (*err).Error()
		return p
	}
	s := n.projector.Status()
	p.OK = s.State == projection.Running || s.State == projection.Standby
	p.Detail = string(s.State)
	if s.Reason != "" {
		p.Detail += ": " + s.Reason
	}
	// The offset is that of the shard furthest behind, and quiet shards are moved up every few seconds only.
	if s.State != projection.Standby && last > s.Offset && time.Since(s.AsOf) > 10*time.Second {
		p.Detail += fmt.Sprintf(", %d records behind", last-s.Offset)
		// Numbers that old should not be shown as live: whoever asks is better served by another node, or by knowing.
		if !s.AsOf.IsZero() && time.Since(s.AsOf) > maxLag {
			p.OK = false
			p.Detail += fmt.Sprintf(", more than %s", maxLag)
		}
	}
	if !s.AsOf.IsZero() {
		p.Detail += ", as of " + s.AsOf.Format(time.RFC3339)
	}
	return p
}

// collectors are the metrics of journal and projector.
func (n *node) collectors() []prometheus.Collector {
	states := []string{}
	for _, s := range []projection.State{projection.Starting, projection.Standby, projection.Running, projection.Retrying, projection.Halted, projection.Stopped} {
		states = append(states, string(s))
	}
	return []prometheus.Collector{
		obs.Group(func() []float64 { return journalFigures(n.journal.Stats()) },
			obs.Stat{Name: "rollcall_journal_records", Help: "Records in the journal."},
			obs.Stat{Name: "rollcall_journal_bytes", Help: "Bytes of the journal's records."},
			obs.Stat{Name: "rollcall_journal_first", Help: "Sequence of the first kept record."},
			obs.Stat{Name: "rollcall_journal_last", Help: "Sequence of the last record."},
			obs.Stat{Name: "rollcall_journal_missing", Help: "Records inside the kept range that the journal has lost."},
			obs.Stat{Name: "rollcall_journal_free_bytes", Help: "Free bytes on the journal's disk, -1 when it is elsewhere."},
			obs.Stat{Name: "rollcall_journal_full", Help: "1 while new events are refused for want of room."},
			obs.Stat{Name: "rollcall_journal_waiting_bytes", Help: "Bytes of events not yet acknowledged."}),
		obs.Group(func() []float64 { return projectorFigures(n.projector.Status(), clock.System{}) },
			obs.Stat{Name: "rollcall_projector_offset", Help: "Journal sequence up to which every projection has committed."},
			obs.Stat{Name: "rollcall_projector_lag_seconds", Help: "Age of the instant before which everything received is visible; -1 before the first commit."},
			obs.Stat{Name: "rollcall_projector_events_total", Help: "Events committed by this process.", Counter: true},
			obs.Stat{Name: "rollcall_projector_duplicates_total", Help: "Duplicates dropped by this process.", Counter: true},
			obs.Stat{Name: "rollcall_projector_epochs_total", Help: "Times the projector began from the offsets in Redis; it grows with each fault.", Counter: true}),
		obs.Group(func() []float64 { return []float64{float64(n.ingest.Unaccounted())} },
			obs.Stat{Name: "rollcall_ingest_unaccounted_total", Help: "Rejected events that rollcall drops does not know of, since the journal did not take their counts.", Counter: true}),
		obs.Group(func() []float64 {
			hits, misses := n.memo.Stats()
			return []float64{float64(hits), float64(misses)}
		},
			obs.Stat{Name: "rollcall_answers_kept_total", Help: "Questions about days that are over, answered from memory.", Counter: true},
			obs.Stat{Name: "rollcall_answers_read_total", Help: "Questions about days that are over, answered from Redis.", Counter: true}),
		n.sketchError,
		obs.State("rollcall_projector_state", "1 for the state the projector is in.", states, func() string { return string(n.projector.Status().State) }),
	}
}

// newSketchError measures what sketches promise: their standard error is 0.0081, so two of three answers lie below it.
func newSketchError() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "rollcall_uv_real_error_ratio", Help: "How far UV by HyperLogLog was from the exact number, as a share of it, in answers that hold both.",
		Buckets: []float64{0.001, 0.002, 0.004, 0.0081, 0.0162, 0.0243, 0.05, 0.1},
	})
}

func journalFigures(s journal.Stats) []float64 {
	full := 0.0
	if s.Full {
		full = 1
	}
	return []float64{float64(s.Records), float64(s.Bytes), float64(s.First), float64(s.Last), float64(s.Missing), float64(s.FreeDisk), full, float64(s.Waiting)}
}

func projectorFigures(s projection.Status, c clock.Clock) []float64 {
	lag := -1.0
	if !s.AsOf.IsZero() {
		lag = max(0, c.Now().Sub(s.AsOf).Seconds())
	}
	return []float64{float64(s.Offset), lag, float64(s.Events), float64(s.Dups), float64(s.Epochs)}
}
