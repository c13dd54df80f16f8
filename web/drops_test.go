package web

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/rollcall/rollcall/ingest/drops"
)

func (r *rooms) Drops(_ context.Context, q drops.Request) (*drops.Drops, error) {
	r.drops = q
	if r.fault != nil {
		return nil, r.fault
	}
	return &drops.Drops{}, nil
}

func TestDropsPassesOnWhatWasAsked(t *testing.T) {
	f := setUp(t, slog.LevelInfo)
	ok := func(query string, want drops.Request) {
		t.Helper()
		f.rooms.drops = drops.Request{}
		w := f.do("GET", "/v1/drops?key=rcr_r"+query, "")
		want.Project, want.Zone = "demo", f.rooms.drops.Zone
		if w.Code != 200 || f.rooms.drops != want || want.Zone.String() != "UTC" {
			t.Errorf("%s: %d, asked %+v, want %+v", query, w.Code, f.rooms.drops, want)
		}
	}
	ok("", drops.Request{Period: "1h"})
	ok("&period=2d&interval=hour", drops.Request{Period: "2d", Interval: "hour"})
	ok("&from=2026-01-01T00:00:00%2B08:00&to=2026-01-02", drops.Request{From: "2026-01-01T00:00:00+08:00", To: "2026-01-02"})
	for path, csv := range map[string]bool{"/v1/drops": false, "/v1/drops.csv": true} {
		w := f.do("GET", path+"?key=rcr_r", "")
		if got := strings.HasPrefix(w.Body.String(), "label,from,to,received,"); w.Code != 200 || got != csv || got != strings.HasPrefix(w.Header().Get("Content-Type"), "text/csv") {
			t.Errorf("%s: %d %s %.40s; want CSV: %v", path, w.Code, w.Header().Get("Content-Type"), w.Body, csv)
		}
	}
	problem(t, f.do("GET", "/v1/drops?key=rcw_w", ""), 403, "key_scope")
}
