package journal

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rollcall/rollcall/internal/event"
)

// remote is a NATS server with a port, as an operator would run it.
type remote struct {
	opts server.Options
	srv  *server.Server
}

func newRemote(t *testing.T, change func(*server.Options)) *remote {
	t.Helper()
	r := &remote{opts: server.Options{
		Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(),
		SyncAlways: true, MaxPayload: 16 << 20, NoSystemAccount: true,
	}}
	if change != nil {
		change(&r.opts)
	}
	r.start(t)
	t.Cleanup(r.stop)
	return r
}

func (r *remote) start(t *testing.T) {
	t.Helper()
	o := r.opts
	srv, err := server.NewServer(&o)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	if !srv.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
	r.srv = srv
	r.opts.Port = o.Port // the one that was chosen
}

func (r *remote) stop() {
	r.srv.Shutdown()
	r.srv.WaitForShutdown()
}

func (r *remote) url() string { return r.srv.ClientURL() }

// The same code on an external server: two processes, one appends, the other projects and announces.
func TestExternalTwoProcesses(t *testing.T) {
	srv := newRemote(t, nil)
	ingest := opened(t, Options{URL: srv.url(), MaxBytes: 64 << 20})
	projector := opened(t, Options{URL: srv.url(), MaxBytes: 64 << 20, MaxAge: 1})
	if ingest.Identity() != projector.Identity() || ingest.Producer() == projector.Producer() {
		t.Fatalf("identities %s, %s; producers %x, %x", ingest.Identity(), projector.Identity(), ingest.Producer(), projector.Producer())
	}
	r, err := projector.Read(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i := range 20 {
		rec := appended(t, ingest, noticed(chunk(0, fmt.Sprint(i), "dup")))
		announce(t, projector, r)
		if n, err := rec.Applied(t.Context()); err != nil || !slices.Equal(n.Duplicates, []int{0, 1}) {
			t.Fatalf("Applied: %+v, %v", n, err)
		}
	}
	appended(t, projector, chunk(0, "the other writes too"))
	entries, err := readAll(t, ingest, 1)
	if err != nil || len(entries) != 21 {
		t.Fatalf("%d records, %v", len(entries), err)
	}
	if err := projector.Trim(t.Context(), 20); err != nil {
		t.Fatal(err)
	}
	if first, last := bounds(t, ingest); first != 21 || last != 21 {
		t.Fatalf("after the trim: %d to %d, want 21 to 21", first, last)
	}
	if h, _, err := event.ReadHeader(entries[20].Data); err != nil || h.Producer != projector.Producer() || h.Number != 1 {
		t.Fatalf("header %+v, %v", h, err)
	}
}

// The server goes away and comes back: appends and the reader go on where they were, and no acknowledged record is missing.
func TestExternalReconnects(t *testing.T) {
	srv := newRemote(t, nil)
	j := opened(t, Options{URL: srv.url(), ackWait: 200 * time.Millisecond})
	r, err := j.Read(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var mu sync.Mutex
	acked := map[string]bool{}
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(acked) }
	ctx, end := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for p := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprintf("%d-%d", p, i)
				if _, err := j.Append(ctx, chunk(0, id)); err == nil {
					mu.Lock()
					acked[id] = true
					mu.Unlock()
				} else if ctx.Err() == nil {
					t.Errorf("Append: %v", err)
					return
				}
			}
		})
	}
	for range 3 {
		n := count()
		eventually(t, "appends flow", func() bool { return count() > n+100 })
		srv.stop()
		srv.start(t)
	}
	n := count()
	eventually(t, "appends flow again", func() bool { return count() > n+100 })
	end()
	wg.Wait()
	_, last := bounds(t, j)
	// A record may be there twice, with one header.
	headers := map[uint64]uint32{}
	got := map[string]bool{}
	for {
		e, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rec := decoded(t, e)
		if sum, ok := headers[rec.Number]; ok && sum != rec.Sum {
			t.Fatalf("number %d stands for two records", rec.Number)
		} else if !ok {
			headers[rec.Number] = rec.Sum
			for _, ev := range rec.Events {
				if got[ev.ID] {
					t.Fatalf("event %s is in two records", ev.ID)
				}
				got[ev.ID] = true
			}
		}
		if e.Seq == last {
			break
		}
	}
	for id := range acked {
		if !got[id] {
			t.Fatalf("acknowledged event %s is gone", id)
		}
	}
}

// While the server is away an append fails with its context, and the record lands when the server is back.
func TestExternalAway(t *testing.T) {
	srv := newRemote(t, nil)
	j := opened(t, Options{URL: srv.url(), ackWait: 100 * time.Millisecond})
	appended(t, j, chunk(0, "before"))
	srv.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := j.Append(ctx, chunk(0, "meanwhile"))
	wantCode(t, err, "journal_unavailable")
	srv.start(t)
	appended(t, j, chunk(0, "after"))
	entries, err := readAll(t, j, 1)
	got := slices.Compact(ids(t, entries)) // a repeat is allowed
	if want := []string{"before", "meanwhile", "after"}; err != nil || !slices.Equal(got, want) {
		t.Fatalf("read %v, %v, want %v", got, err, want)
	}
}

func TestExternalUnsafeStream(t *testing.T) {
	srv := newRemote(t, nil)
	j := opened(t, Options{URL: srv.url(), Stream: "GOOD"})
	for name, change := range map[string]func(*jetstream.StreamConfig){
		"discard":   func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld },
		"max_age":   func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"storage":   func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
		"max_msgs":  func(c *jetstream.StreamConfig) { c.MaxMsgs = 100 },
		"retention": func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy },
		"metadata":  func(c *jetstream.StreamConfig) { c.Metadata = nil },
		"subject":   func(c *jetstream.StreamConfig) { c.Subjects = []string{"rollcall.journal.BAD", "else"} },
		"purge":     func(c *jetstream.StreamConfig) { c.DenyPurge = true },
	} {
		t.Run(name, func(t *testing.T) {
			c := j.config(strings.Repeat("0", identityLn))
			c.Name, c.Subjects = "BAD", []string{"rollcall.journal.BAD"}
			change(&c)
			if _, err := j.js.CreateStream(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			_, err := Open(t.Context(), Options{URL: srv.url(), Stream: "BAD"})
			wantErr(t, err, ErrBadStream)
			if !strings.Contains(err.Error(), name) {
				t.Fatalf("%v does not name %s", err, name)
			}
			if err := j.js.DeleteStream(t.Context(), "BAD"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestExternalMaxPayload(t *testing.T) {
	srv := newRemote(t, func(o *server.Options) { o.MaxPayload = 1 << 20 })
	_, err := Open(t.Context(), Options{URL: srv.url()})
	wantErr(t, err, ErrMaxPayload)
	if !strings.Contains(err.Error(), "max_payload: 16MB") {
		t.Fatalf("%v names no remedy", err)
	}
}

func TestExternalNobodyThere(t *testing.T) {
	if _, err := Open(t.Context(), Options{URL: "nats://user:secret@127.0.0.1:1"}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Fatalf("Open: %v", err)
	}
}

// A cluster of three: the stream has three replicas, and the loss of its leader loses nothing.
func TestExternalCluster(t *testing.T) {
	var urls []string
	nodes := map[string]*remote{}
	var ports []int
	var routes []string
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		routes = append(routes, "nats://"+l.Addr().String())
		l.Close()
	}
	for i := range 3 {
		r := newRemote(t, func(o *server.Options) {
			o.ServerName = fmt.Sprintf("n%d", i)
			o.NoSystemAccount = false
			o.Cluster = server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: ports[i]}
			o.Routes = server.RoutesFromStr(strings.Join(routes, ","))
		})
		urls = append(urls, r.url())
		nodes[r.opts.ServerName] = r
	}
	eventually(t, "the cluster has a leader and three peers", func() bool {
		for _, r := range nodes {
			if r.srv.JetStreamIsLeader() {
				return len(r.srv.JetStreamClusterPeers()) == 3
			}
		}
		return false
	})
	o := Options{URL: strings.Join(urls, ","), ackWait: time.Second, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	j := opened(t, o)
	var want []string
	add := func() {
		id := fmt.Sprint(len(want))
		appended(t, j, chunk(0, id))
		want = append(want, id)
	}
	for range 50 {
		add()
	}
	info, err := j.stream.Info(t.Context())
	if err != nil || info.Config.Replicas != 3 {
		t.Fatalf("replicas: %+v, %v", info, err)
	}
	r, err := j.Read(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.tick = 100 * time.Millisecond
	nodes[info.Cluster.Leader].stop()
	for range 50 {
		add()
	}
	var got []string
	for len(got) < len(want) {
		e, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids(t, []Entry{e}) {
			if len(got) == 0 || got[len(got)-1] != id { // a repeat is allowed
				got = append(got, id)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("read %v", got)
	}
}

// The embedded server is restarted under a reader and a writer (as heal does): both go on.
func TestEmbeddedRestart(t *testing.T) {
	j := opened(t, Options{ackWait: 500 * time.Millisecond})
	r, err := j.Read(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.tick = 100 * time.Millisecond
	for i := range 3 {
		appended(t, j, chunk(0, fmt.Sprint(i)))
		j.node.halt()
		if err := j.node.start(); err != nil {
			t.Fatal(err)
		}
		appended(t, j, chunk(0, fmt.Sprint(i, "b")))
		for {
			e, err := r.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if ids(t, []Entry{e})[0] == fmt.Sprint(i, "b") {
				break
			}
		}
	}
}
