package realtest

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
)

// Action is what the proxy does with a command that it was told to wait for.
type Action int

const (
	// DropReply lets the server run the command and closes the client's connection instead of delivering the reply.
	DropReply Action = iota
	// HoldRequest closes the client's connection at once and gives the command to the server only at Release, over the server
	// connection that the client had: a request that was long on its way.
	HoldRequest
)

// Proxy is a TCP proxy in front of one server that knows where a request ends and which reply answers it. It serves
// request-and-reply connections; commands without exactly one reply (SUBSCRIBE in RESP2, MONITOR, CLIENT REPLY) pass, but nothing
// can be hooked on a connection that has used them.
type Proxy struct {
	Addr string // host:port

	listener net.Listener
	wg       sync.WaitGroup
	mu       sync.Mutex
	target   string
	refuse   bool
	closed   bool
	hooks    []*Hook
	links    map[*link]bool
	held     map[*link]bool
}

// Hook is one pending or fulfilled OnNext.
type Hook struct {
	match   func(cmd [][]byte) bool
	action  Action
	hit     chan struct{}
	release chan struct{}
	done    chan struct{} // after it, reply and err stand
	reply   bytes.Buffer
	err     error

	hitOnce, releaseOnce, doneOnce sync.Once
}

// NewProxy listens on a free port of 127.0.0.1 and forwards to target: host:port, or the path of a unix socket.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), listener: l, target: target, links: map[*link]bool{}, held: map[*link]bool{}}
	p.wg.Add(1)
	go p.accept()
	t.Cleanup(p.close)
	return p
}

// OnNext waits for the next command for which match says yes, acts on it, and is then spent. match sees every command of every
// connection, one at a time: its words, which it must not keep. It must not call the proxy. Scripts arrive as EVALSHA or EVAL: match by their arguments.
func (p *Proxy) OnNext(match func(cmd [][]byte) bool, action Action) *Hook {
	h := &Hook{match: match, action: action, hit: make(chan struct{}), release: make(chan struct{}), done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hooks = append(p.hooks, h)
	return h
}

// Hit is closed when the command has come and the client's connection is closed: with DropReply the server has answered it by
// then, with HoldRequest it has not seen it.
func (h *Hook) Hit() <-chan struct{} { return h.hit }

// Release gives a held command to the server and returns its raw reply when it has been read. It waits for the command to
// come first. An error means that the server, or the proxy, was gone.
func (h *Hook) Release() ([]byte, error) {
	if h.action != HoldRequest {
		return nil, errors.New("realtest: nothing is held")
	}
	h.releaseOnce.Do(func() { close(h.release) })
	<-h.done
	return h.reply.Bytes(), h.err
}

// CutAll closes every connection on both sides. Held requests stay held.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// SetTarget names the server for new connections; those that exist stay where they are.
func (p *Proxy) SetTarget(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
}

// Refuse makes the proxy close new connections as soon as they are made, as a port does whose server is gone.
func (p *Proxy) Refuse(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = yes
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	_ = p.listener.Close()
	for l := range p.links {
		l.close()
	}
	for l := range p.held {
		l.close()
	}
	for _, h := range p.hooks {
		h.end(net.ErrClosed)
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	defer p.wg.Done()
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Add(1)
		go p.serve(client)
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer p.wg.Done()
	p.mu.Lock()
	target, refuse := p.target, p.refuse
	p.mu.Unlock()
	if refuse {
		_ = client.Close()
		return
	}
	network := "tcp"
	if strings.HasPrefix(target, "/") {
		network = "unix"
	}
	srv, err := net.Dial(network, target)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{p: p, client: client, server: srv}
	p.mu.Lock()
	if p.closed {
		l.close()
	}
	p.links[l] = true
	p.mu.Unlock()
	p.wg.Add(1)
	go l.replies()
	l.requests()
}

// giveBack arms a taken hook again: its command went nowhere.
func (p *Proxy) giveBack(h *Hook) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		h.end(net.ErrClosed)
		return
	}
	p.hooks = append(p.hooks, h)
}

func (h *Hook) struck() { h.hitOnce.Do(func() { close(h.hit) }) }

func (h *Hook) end(err error) {
	h.doneOnce.Do(func() {
		h.err = err
		close(h.done)
	})
	h.struck()
}

// take returns the hook that waits for this command, if any.
func (p *Proxy) take(cmd [][]byte) *Hook {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, h := range p.hooks {
		if h.match(cmd) {
			p.hooks = append(p.hooks[:i], p.hooks[i+1:]...)
			return h
		}
	}
	return nil
}
