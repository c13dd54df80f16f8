package obs

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// NewRegistry returns a registry with build info and the Go runtime's and the process's own metrics.
func NewRegistry(version string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "rollcall_build_info", Help: "Always 1; the labels say what runs.",
		ConstLabels: prometheus.Labels{"version": version, "go": runtime.Version()},
	})
	build.Set(1)
	r.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Stat is one unlabelled figure of a Group.
type Stat struct {
	Name, Help string
	Counter    bool // it only grows; else it is a gauge
}

// Group is a collector of figures that are read together, once a scrape: read returns one value for each Stat, in their order.
func Group(read func() []float64, stats ...Stat) prometheus.Collector {
	g := &group{read: read}
	for _, s := range stats {
		g.descs = append(g.descs, prometheus.NewDesc(s.Name, s.Help, nil, nil))
		kind := prometheus.GaugeValue
		if s.Counter {
			kind = prometheus.CounterValue
		}
		g.kinds = append(g.kinds, kind)
	}
	return g
}

type group struct {
	read  func() []float64
	descs []*prometheus.Desc
	kinds []prometheus.ValueType
}

func (g *group) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range g.descs {
		ch <- d
	}
}

func (g *group) Collect(ch chan<- prometheus.Metric) {
	for i, v := range g.read() {
		ch <- prometheus.MustNewConstMetric(g.descs[i], g.kinds[i], v)
	}
}

// State is a collector with one series for each of the states, 1 for the current one and 0 for the others.
func State(name, help string, states []string, current func() string) prometheus.Collector {
	return &state{prometheus.NewDesc(name, help, []string{"state"}, nil), states, current}
}

type state struct {
	desc    *prometheus.Desc
	states  []string
	current func() string
}

func (s *state) Describe(ch chan<- *prometheus.Desc) { ch <- s.desc }

func (s *state) Collect(ch chan<- prometheus.Metric) {
	now := s.current()
	for _, name := range s.states {
		v := 0.0
		if name == now {
			v = 1
		}
		ch <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, v, name)
	}
}
