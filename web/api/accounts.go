package api

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall/rollcall/ingest"
)

// accounts are the metrics of what came in since the start of this process: rollcall_ingest_…_total by project. Project ids are the operator's,
// codes rollcall's own fixed words; nothing of it is what a client sent.
type accounts struct {
	received, accepted, duplicates, bots, rejected *prometheus.CounterVec
	projects                                       sync.Map // id → *projectAccounts
}

// projectAccounts are one project's, looked up once.
type projectAccounts struct{ received, accepted, duplicates, bots prometheus.Counter }

func (a *accounts) init(r prometheus.Registerer) {
	count := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_ingest_" + name + "_total", Help: help}, append([]string{"project"}, labels...))
		r.MustRegister(v)
		return v
	}
	a.received = count("received", "Events in readable requests: accepted, duplicates, bots and rejected.")
	a.accepted = count("accepted", "Events that are in the journal; among them duplicates of requests that did not wait.")
	a.duplicates = count("duplicates", "Events that a waiting client was told are duplicates; rollcall drops knows all of them.")
	a.bots = count("bots", "Events of bots: in the journal, but in no count.")
	a.rejected = count("rejected", "Events refused, by code.", "code")
}

func (a *accounts) add(project string, r *ingest.Result) {
	var p *projectAccounts
	if known, ok := a.projects.Load(project); ok {
		p = known.(*projectAccounts)
	} else {
		p = &projectAccounts{a.received.WithLabelValues(project), a.accepted.WithLabelValues(project),
			a.duplicates.WithLabelValues(project), a.bots.WithLabelValues(project)}
		a.projects.Store(project, p)
	}
	p.received.Add(float64(r.Received))
	p.accepted.Add(float64(r.Accepted))
	if r.Duplicates > 0 {
		p.duplicates.Add(float64(r.Duplicates))
	}
	if r.Bots > 0 {
		p.bots.Add(float64(r.Bots))
	}
	for i := range r.Rejected {
		a.rejected.WithLabelValues(project, r.Rejected[i].Code).Inc()
	}
}
