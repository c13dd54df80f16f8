package obs

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

func TestLogFormats(t *testing.T) {
	f := func(format string, isJSON bool) {
		t.Helper()
		var b bytes.Buffer
		log, err := NewLog(&b, "info", format)
		if err != nil {
			t.Fatal(err)
		}
		log.Debug("hidden")
		log.Info("shown", "n", 1)
		if strings.Contains(b.String(), "hidden") || !strings.Contains(b.String(), "shown") {
			t.Errorf("format %s wrote %q", format, b.String())
		}
		if json.Valid(bytes.TrimSpace(b.Bytes())) != isJSON {
			t.Errorf("format %s wrote %q; JSON wanted: %v", format, b.String(), isJSON)
		}
	}
	f("auto", true) // a buffer is no terminal
	f("json", true)
	f("text", false)
	if _, err := NewLog(&bytes.Buffer{}, "loud", "text"); err == nil {
		t.Error("level loud was taken")
	}
}

func TestCollectors(t *testing.T) {
	r := NewRegistry("v1")
	r.MustRegister(
		Group(func() []float64 { return []float64{3, 4} }, Stat{"x_total", "x", true}, Stat{"y", "y", false}),
		State("s", "s", []string{"up", "down"}, func() string { return "down" }),
	)
	res := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(res, httptest.NewRequest("GET", "/", nil))
	page := res.Body.String()
	for _, want := range []string{
		"# HELP s s\n# TYPE s gauge\ns{state=\"down\"} 1\ns{state=\"up\"} 0\n",
		"# HELP x_total x\n# TYPE x_total counter\nx_total 3\n",
		"# HELP y y\n# TYPE y gauge\ny 4\n",
		"\nrollcall_build_info{", "\ngo_goroutines ", "\nprocess_start_time_seconds ",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("missing %q in:\n%s", want, page)
		}
	}
}
