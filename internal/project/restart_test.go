package project

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/journal"
)

// startNATS runs a server on a port, 0 = any free one.
func startNATS(t *testing.T, dir string, port int) *server.Server {
	t.Helper()
	if port == 0 {
		port = server.RANDOM_PORT
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, SyncAlways: true, MaxPayload: 16 << 20, MaxPending: 256 << 20, NoSigs: true, NoLog: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	return s
}

// A node that was cut off from the store goes on with what it knows, and learns what it has missed.
func TestAStoreThatWasAwayIsFollowedAgain(t *testing.T) {
	dir := t.TempDir()
	nats := startNATS(t, dir, 0)
	url, port := nats.ClientURL(), nats.Addr().(*net.TCPAddr).Port
	c := clock.NewManual(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
	connect := func() node {
		j, err := journal.Open(t.Context(), journal.Options{Dir: t.TempDir(), URL: url, Log: quiet, Clock: clock.System{}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_ = j.Close(ctx)
		})
		kv, err := j.Definitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return openNode(t, kv, c)
	}
	a := connect()
	a.mustProject(t, Spec{ID: "shop"})
	_, secret := a.mustKey(t, "shop", Write, time.Time{})
	nats.Shutdown()
	nats.WaitForShutdown()
	if _, err := a.dir.Find(secret); err != nil {
		t.Errorf("while the store is away: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, _, err := a.CreateKey(ctx, "shop", "", Read, time.Time{}); code(err) != "definitions_unavailable" {
		t.Errorf("making a key while the store is away: %v", err)
	}
	startNATS(t, dir, port)
	b := connect()
	until(t, "b knows the project", func() bool { return b.dir.Lookup("shop") != nil })
	_, later := b.mustKey(t, "shop", Read, time.Time{})
	until(t, "a learns of b's key", func() bool { _, err := a.dir.Find(later); return err == nil })
}
