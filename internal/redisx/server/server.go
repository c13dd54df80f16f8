// Package server runs one redis-server process that never outlives the process that started it.
package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// ErrNoBinary is returned by Find; its text names the remedy.
var ErrNoBinary = errors.New("neither redis-server nor valkey-server is in PATH: install one " +
	"(Debian, Ubuntu: apt install redis-server; macOS: brew install redis), or set redis.url to a running server")

// Find returns the path of redis-server, or of valkey-server, which serves as well.
func Find() (string, error) {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNoBinary
}

// Process is one running server. It leads its own process group, so that a Ctrl-C meant for the parent does not stop it while
// the parent still drains, and so that Kill takes its background writers too.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// Start runs the server with args, the configuration on its standard input (where args say "-") and both output streams on log.
// The files in inherit stay open in the child: they carry a lock that lives exactly as long as the child and its forks.
func Start(path string, args []string, config string, log io.Writer, inherit ...*os.File) (*Process, error) {
	p := &Process{cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Stdin = strings.NewReader(config)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.ExtraFiles = inherit
	p.cmd.SysProcAttr = attributes()
	// A background writer that outlives the server holds the log pipe; it must not hold us.
	p.cmd.WaitDelay = time.Second

	started := make(chan error, 1)
	go func() {
		// On Linux the child gets its parent-death signal when the thread that forked it ends, not the process: the thread
		// has to stay ours for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return p, nil
}

// Pid is the process id of the server.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the server has ended and its output has been read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err tells how the server ended; nil means exit status 0. Valid once Done is closed.
func (p *Process) Err() error { return p.err }

// Signal sends a signal to the server alone.
func (p *Process) Signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// Kill ends the server and its forks with SIGKILL and waits for it.
func (p *Process) Kill() {
	select {
	case <-p.done: // its process group id may belong to somebody else by now
		return
	default:
	}
	_ = syscall.Kill(-p.Pid(), syscall.SIGKILL)
	<-p.done
}

// Stop asks the server to flush and end (SIGTERM), and kills it when ctx ends first; then the error is ctx's.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		p.Kill()
		return ctx.Err()
	}
}

// ErrLoading is Ping's answer while the server reads its data from disk.
var ErrLoading = errors.New("server is loading its data")

// Ping asks over a connection of its own whether the server answers. A pool would not do: it remembers failed dials for a second.
func Ping(ctx context.Context, network, addr string) error {
	reply, err := command(ctx, network, addr, "PING\r\n")
	switch {
	case err != nil:
		return err
	case reply == "+PONG":
		return nil
	case strings.HasPrefix(reply, "-LOADING"):
		return ErrLoading
	}
	return fmt.Errorf("PING answered %.60q", reply)
}

// Shutdown asks a server that is nobody's child any more to flush and end. It does not wait for the end.
func Shutdown(ctx context.Context, network, addr string) error {
	_, err := command(ctx, network, addr, "SHUTDOWN NOSAVE\r\n")
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return nil // it hung up instead of answering: that is its yes
	}
	return err
}

func command(ctx context.Context, network, addr, line string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	if _, err := io.WriteString(conn, line); err != nil {
		return "", err
	}
	reply, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimRight(reply, "\r\n"), err
}

// Quote writes a value (a path, say) as one word of a redis-server configuration.
func Quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < 0x20 || c == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
