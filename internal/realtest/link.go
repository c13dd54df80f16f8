package realtest

import (
	"bufio"
	"io"
	"net"
	"sync"
)

// link is one client's connection and the server connection behind it.
type link struct {
	p              *Proxy
	client, server net.Conn

	mu       sync.Mutex
	ended    bool   // the server's side is read to its end
	sent     uint64 // commands given to the server
	hookedAt uint64 // the reply with this number belongs to hook
	hook     *Hook
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// requests forwards the client's commands until one side ends or a hook takes a command.
func (l *link) requests() {
	r := bufio.NewReaderSize(l.client, maxLine)
	w := bufio.NewWriterSize(l.server, maxLine)
	for {
		raw, cmd, err := readCommand(r)
		if err != nil {
			break
		}
		h := l.p.take(cmd)
		if !l.count(h) {
			l.p.giveBack(h)
			break
		}
		if h != nil && h.action == HoldRequest {
			if w.Flush() == nil && l.hold(h, raw) {
				return
			}
			break
		}
		_, err = w.Write(raw)
		if err == nil && (h != nil || r.Buffered() == 0) {
			err = w.Flush()
		}
		if err != nil {
			break
		}
		if h != nil {
			return // replies closes both sides
		}
	}
	_ = w.Flush()
	// The client may have closed only its sending side, and replies are still owed: the server closes when it sees the end.
	if half, ok := l.server.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		l.close()
	}
}

// count numbers the next command and ties its reply to h, if there is one. It refuses h when no reply can come any more.
func (l *link) count(h *Hook) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	if h == nil {
		return true
	}
	if l.ended {
		return false
	}
	l.hook, l.hookedAt = h, l.sent
	return true
}

// hold keeps the server's connection and the command, and closes the client's.
func (l *link) hold(h *Hook, raw []byte) bool {
	l.p.mu.Lock()
	if l.p.closed {
		l.p.mu.Unlock()
		l.close()
		return false
	}
	delete(l.p.links, l)
	l.p.held[l] = true
	l.p.wg.Add(1)
	l.p.mu.Unlock()
	_ = l.client.Close()
	h.struck()
	go func() {
		defer l.p.wg.Done()
		select {
		case <-h.release:
			if _, err := l.server.Write(raw); err != nil {
				l.close() // replies ends the hook
			}
		case <-h.done:
		}
	}()
	return true
}

// replies forwards the server's replies until the server's side ends or the reply of a hooked command has been read.
func (l *link) replies() {
	defer l.p.wg.Done()
	r := bufio.NewReaderSize(l.server, maxLine)
	w := bufio.NewWriterSize(toClient{l.client}, maxLine)
	var err error
	for n := uint64(1); ; {
		var mine *Hook
		push := false
		err = copyReply(r, func(isPush bool) io.Writer {
			l.mu.Lock()
			defer l.mu.Unlock()
			push = isPush
			if l.hook != nil && n == l.hookedAt && !push {
				mine = l.hook
				return &mine.reply
			}
			return w
		})
		if err != nil || mine != nil || r.Buffered() == 0 {
			_ = w.Flush()
		}
		if err != nil || mine != nil {
			break
		}
		if !push {
			n++
		}
	}
	l.close()
	l.p.mu.Lock()
	delete(l.p.links, l)
	delete(l.p.held, l)
	l.p.mu.Unlock()
	l.mu.Lock()
	l.ended = true
	h := l.hook
	l.mu.Unlock()
	if h != nil {
		h.end(err)
	}
}

// toClient never fails: a client that is gone ends the link on its sending side, and the server's replies have to be read and
// counted also without it.
type toClient struct{ net.Conn }

func (c toClient) Write(p []byte) (int, error) {
	_, _ = c.Conn.Write(p)
	return len(p), nil
}
