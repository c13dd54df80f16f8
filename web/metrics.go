package web

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of all routes. The route label is a route's template or "unmatched", the code label a class: no label carries what a
// client sent.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_http_requests_total", Help: "Requests answered, by route and class of status.",
		}, []string{"route", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rollcall_http_request_seconds", Help: "Time from the end of the request's header to the end of the handler.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
		}, []string{"route"}),
	}
	r.MustRegister(m.requests, m.seconds)
	return m
}

// routeMetrics is one route's share, looked up once.
type routeMetrics struct {
	name    string
	classes [6]prometheus.Counter // by the status's first digit
	seconds prometheus.Observer
}

func (m *metrics) route(name string) *routeMetrics {
	r := &routeMetrics{name: name, seconds: m.seconds.WithLabelValues(name)}
	for i, class := range []string{"other", "1xx", "2xx", "3xx", "4xx", "5xx"} {
		r.classes[i] = m.requests.WithLabelValues(name, class)
	}
	return r
}

func (r *routeMetrics) observe(status int, took time.Duration) {
	class := status / 100
	if class < 1 || class > 5 {
		class = 0
	}
	r.classes[class].Inc()
	r.seconds.Observe(took.Seconds())
}
