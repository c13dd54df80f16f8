package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/nats-io/nats-server/v2/server"
)

const (
	maxPayload = 16 << 20 // of the embedded server
	minPayload = 9 << 20  // the largest request (8 MiB) and its framing must fit
)

// node is the embedded server and the lock on its folder. It is the in-process dialer of the client connection, so that the
// connection finds the new server after a restart.
type node struct {
	dir  string
	lock *flock.Flock
	log  *slog.Logger
	sick chan struct{} // holds a token when the server said that it cannot write any more

	mu  sync.Mutex
	srv *server.Server // nil while stopped
}

func startNode(dir string, log *slog.Logger) (*node, error) {
	n := &node{dir: dir, lock: flock.New(filepath.Join(dir, "lock"), flock.SetPermissions(0o600)), log: log, sick: make(chan struct{}, 1)}
	ok, err := n.lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("journal: locking the folder %s: %w", dir, err)
	}
	if !ok {
		return nil, fmt.Errorf("%w: %s; stop that process or give this one another data folder", ErrInUse, dir)
	}
	if err := n.start(); err != nil {
		return nil, errors.Join(err, n.lock.Unlock())
	}
	return n, nil
}

// start runs a server: file store, each write synced, no port, no signals.
func (n *node) start() error {
	srv, err := server.NewServer(&server.Options{
		ServerName:             "rollcall",
		DontListen:             true,
		NoSigs:                 true,
		NoLog:                  true,
		NoSystemAccount:        true,
		DisableJetStreamBanner: true,
		JetStream:              true,
		JetStreamMaxMemory:     256 << 20,
		JetStreamMaxStore:      1 << 60, // the stream's quota and the free disk are our limits, not a share of the disk at start
		StoreDir:               filepath.Join(n.dir, "nats"),
		SyncAlways:             true,
		MaxPayload:             maxPayload,
		MaxPending:             256 << 20,
	})
	if err != nil {
		return fmt.Errorf("journal: embedded server: %w", err)
	}
	srv.SetLoggerV2(bridge{n}, false, false, false)
	srv.Start()
	if !srv.ReadyForConnections(30*time.Second) || !srv.JetStreamEnabled() {
		srv.Shutdown()
		srv.WaitForShutdown()
		return fmt.Errorf("journal: the embedded server did not start in %s; its log says why", n.dir)
	}
	n.mu.Lock()
	n.srv = srv
	n.mu.Unlock()
	return nil
}

// InProcessConn implements nats.InProcessConnProvider.
func (n *node) InProcessConn() (net.Conn, error) {
	n.mu.Lock()
	srv := n.srv
	n.mu.Unlock()
	if srv == nil {
		return nil, errors.New("journal: the embedded server is not running")
	}
	return srv.InProcessConn()
}

// halt stops the server and keeps the lock.
func (n *node) halt() {
	n.mu.Lock()
	srv := n.srv
	n.srv = nil
	n.mu.Unlock()
	if srv != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
	}
}

// stop stops the server and gives the folder back. The folder stays locked while the server is still stopping after ctx.
func (n *node) stop(ctx context.Context) error {
	done := make(chan error, 1)
	go func() {
		n.halt()
		done <- n.lock.Unlock()
	}()
	// A ctx that is over already still gets a moment: an unclean stop costs a scan of all blocks at the next start.
	grace := time.NewTimer(5 * time.Second)
	defer grace.Stop()
	select {
	case err := <-done:
		return err
	case <-grace.C:
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("journal: the embedded server is still stopping: %w", ctx.Err())
	}
}

// bridge carries the server's log into slog. Its notices are our debug lines.
type bridge struct{ *node }

func (b bridge) Noticef(f string, a ...any) { b.log.Debug("nats: " + fmt.Sprintf(f, a...)) }
func (b bridge) Debugf(string, ...any)      {}
func (b bridge) Tracef(string, ...any)      {}

// Warnf leaves out the advice about max_payload: the embedded server's only clients are ours.
func (b bridge) Warnf(f string, a ...any) {
	if !strings.HasPrefix(f, "Maximum payloads") {
		b.log.Warn("nats: " + fmt.Sprintf(f, a...))
	}
}

// Errorf also listens for the one error after which JetStream answers no publish any more; there is no call that would tell.
func (b bridge) Errorf(f string, a ...any) {
	msg := fmt.Sprintf(f, a...)
	b.log.Error("nats: " + msg)
	if strings.Contains(strings.ToLower(msg), "critical write error") {
		select {
		case b.sick <- struct{}{}:
		default:
		}
	}
}

// Fatalf ends the process in a standalone server. Here the caller's checks after the start report the failure.
func (b bridge) Fatalf(f string, a ...any) { b.log.Error("nats: " + fmt.Sprintf(f, a...)) }

var _ server.Logger = bridge{}
