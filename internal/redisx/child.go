package redisx

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/rollcall/rollcall/internal/redisx/server"
)

// ErrInUse is inside the error of a second rollcall on one folder.
var ErrInUse = errors.New("folder is in use")

const (
	ownerLock = "rollcall.lock" // held by the rollcall that manages the folder
	childLock = "redis.lock"    // held by redis-server and its forks, which inherit it

	silence  = 30 * time.Second // a child that neither answers nor says it is loading is given up
	orphan   = 30 * time.Second // for a child of a killed rollcall to end
	stopTime = 10 * time.Second
	// Pause before a dead child is started again; doubles while it keeps dying, back to the first after a run of steady.
	firstPause, lastPause, steady = 100 * time.Millisecond, 10 * time.Second, 30 * time.Second
)

// child is the managed redis-server: one folder, one socket, started again whenever it dies.
type child struct {
	dir, sock, binary string
	log               *slog.Logger
	owner             *os.File
	cancel            context.CancelFunc
	ended             chan struct{} // supervise has returned

	mu      sync.Mutex
	process *server.Process
	down    error // why it does not serve; nil: it does
}

// startChild starts a redis-server on the folder and returns when it has loaded its data.
func startChild(ctx context.Context, dir string, log *slog.Logger) (*child, error) {
	binary, err := server.Find()
	if err != nil {
		return nil, fmt.Errorf("managed Redis: %w", err)
	}
	if dir == "" {
		return nil, errors.New("managed Redis: no folder")
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("managed Redis: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("managed Redis: %w", err)
	}
	c := &child{dir: dir, binary: binary, log: log, ended: make(chan struct{})}
	// The kernel frees the lock of a killed rollcall a moment after it is gone.
	tries := 0
	c.owner, err = lockFile(ctx, filepath.Join(dir, ownerLock), func() error {
		if tries++; tries > 50 {
			return fmt.Errorf("managed Redis: another rollcall runs on %s: stop it, or give this one a data folder of its own: %w", dir, ErrInUse)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if c.sock, err = socketPath(dir); err == nil {
		err = c.launch(ctx)
	}
	if err != nil {
		_ = c.owner.Close()
		return nil, err
	}
	supervised, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	go c.supervise(supervised)
	return c, nil
}

// fault tells why the child does not serve, or nil.
func (c *child) fault() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.down
}

func (c *child) current() *server.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.process
}

func (c *child) set(p *server.Process, down error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.process, c.down = p, down
}

// supervise starts the child again until the context ends.
func (c *child) supervise(ctx context.Context) {
	defer close(c.ended)
	wait, since := firstPause, time.Now()
	for {
		process := c.current()
		if process != nil {
			select {
			case <-ctx.Done():
				return
			case <-process.Done():
			}
			down := fmt.Errorf("managed Redis ended (%v) and is being started again", process.Err())
			c.set(nil, down)
			c.log.Error("redis-server ended; starting it again", "status", process.Err(), "folder", c.dir)
			if time.Since(since) >= steady {
				wait = firstPause
			}
		}
		if pause(ctx, wait) != nil {
			return
		}
		wait, since = min(2*wait, lastPause), time.Now()
		if err := c.launch(ctx); err != nil && ctx.Err() == nil {
			c.set(nil, err)
			c.log.Error("redis-server does not start; trying again", "error", err, "in", wait)
		}
	}
}

// launch starts the process and waits until it serves.
func (c *child) launch(ctx context.Context) error {
	lock, err := c.lockData(ctx)
	if err != nil {
		return err
	}
	if err := mendAOF(ctx, c.dir, c.log); err != nil {
		_ = lock.Close()
		return fmt.Errorf("managed Redis: %w", err)
	}
	lines := &lineLog{log: c.log}
	process, err := server.Start(c.binary, []string{"-"}, c.config(), lines, lock)
	_ = lock.Close() // from here it is the child's alone
	if err != nil {
		return fmt.Errorf("managed Redis: %w", err)
	}
	if err := c.ready(ctx, process, lines); err != nil {
		process.Kill()
		return err
	}
	lines.serving.Store(true)
	c.set(process, nil)
	return nil
}

// lockData waits until no redis-server has the folder. On Linux the kernel ends the child of a killed rollcall with it; elsewhere
// it lives on, and is asked to flush and end.
func (c *child) lockData(ctx context.Context) (*os.File, error) {
	began, asked := time.Now(), time.Time{}
	return lockFile(ctx, filepath.Join(c.dir, childLock), func() error {
		if time.Since(began) > orphan {
			return fmt.Errorf("managed Redis: a redis-server of an earlier rollcall still has %s and does not end: "+
				"end it (fuser %s shows it)", c.dir, filepath.Join(c.dir, childLock))
		}
		if time.Since(asked) > time.Second {
			asked = time.Now()
			if server.Shutdown(ctx, "unix", c.sock) == nil {
				c.log.Warn("asked the redis-server of an earlier rollcall to end", "folder", c.dir)
			}
		}
		return nil
	})
}

// ready waits for the first answer, as long as the child takes to load its data.
func (c *child) ready(ctx context.Context, process *server.Process, lines *lineLog) error {
	heard, loading := time.Now(), false
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		err := server.Ping(ctx, "unix", c.sock)
		select {
		case <-process.Done():
			return c.diagnose(process.Err(), lines.tail())
		default:
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, server.ErrLoading):
			heard = time.Now()
			if !loading {
				loading = true
				c.log.Info("redis-server is loading its data", "folder", c.dir)
			}
		case time.Since(heard) > silence:
			return fmt.Errorf("managed Redis does not answer on %s: %w", c.sock, err)
		}
		if err := pause(ctx, wait); err != nil {
			return fmt.Errorf("managed Redis was not ready in time: %w", err)
		}
	}
}

// What redis-server prints before it gives up on a file: an incremental file, with its name, which redis-check-aof can cut where
// it is broken; or the base or the list of files, which it cannot mend.
var (
	brokenTail = regexp.MustCompile(`reading the append only file ([^\s:]+)`)
	brokenBase = regexp.MustCompile(`Internal error in RDB reading|Error reading the RDB|AOF manifest|Unable to obtain the AOF file`)
)

// diagnose explains a child that ended before it served.
func (c *child) diagnose(status error, tail []string) error {
	folder, list := filepath.Join(c.dir, aofFolder), aofList
	if _, err := os.Stat(folder); err != nil { // before 7.0
		folder, list = c.dir, "appendonly.aof"
	}
	for _, line := range tail {
		if m := brokenTail.FindStringSubmatch(line); m != nil {
			return unfitError{fmt.Sprintf("managed Redis cannot read its append-only file %s (%s). Copy %s aside, then run: redis-check-aof --fix %s. "+
				"What that cuts off is counted again from the journal", filepath.Join(folder, m[1]), line, folder, filepath.Join(folder, list))}
		}
	}
	for _, line := range tail {
		if brokenBase.MatchString(line) {
			return unfitError{fmt.Sprintf("managed Redis cannot read its data in %s (%s), and redis-check-aof --fix mends only the newest file. "+
				"Put a backup there, or move the folder away to count again what the journal still holds", folder, line)}
		}
	}
	return fmt.Errorf("managed Redis ended before it served (%v): %s", status, strings.Join(tail[max(0, len(tail)-4):], " | "))
}

// config is the child's whole configuration. An everysec AOF may lose the last second with the machine; the offsets stand in the
// same file, so the journal fills it in again.
func (c *child) config() string {
	return strings.Join([]string{
		"port 0",
		"unixsocket " + server.Quote(c.sock),
		"unixsocketperm 700",
		"dir " + server.Quote(c.dir),
		"appendonly yes",
		"appendfsync everysec",
		`save ""`,
		"maxmemory-policy noeviction",
		"always-show-logo no",
		"",
	}, "\n")
}

// close ends the supervision and then the child.
func (c *child) close(ctx context.Context) error {
	c.cancel()
	<-c.ended
	defer func() {
		if run := filepath.Dir(c.sock); run != filepath.Join(c.dir, "run") { // do not litter the temp folder
			_ = os.Remove(c.sock)
			_ = os.Remove(run)
		}
		_ = c.owner.Close()
	}()
	process := c.current()
	if process == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	if err := process.Stop(ctx); err != nil {
		return fmt.Errorf("managed Redis did not end in time and was killed: %w", err)
	}
	return nil
}
