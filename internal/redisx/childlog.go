package redisx

import (
	"bytes"
	"context"
	"log/slog"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	longestLine = 4 << 10
	keptLines   = 20
)

// lineLog passes redis-server's lines on to slog and keeps the last of them. While it serves, its warnings are warnings; what it
// says while it starts is of interest only if it fails, and then stands in the error.
type lineLog struct {
	log     *slog.Logger
	serving atomic.Bool

	mu   sync.Mutex
	part []byte
	last []string
}

// stamp is what stands before each message: "123:M 01 Dec 2026 02:34:05.774 # ". The sign is the level.
var stamp = regexp.MustCompile(`^\d+:[XCSM] .{20,24} ([.*#-]) `)

func (l *lineLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rest := p; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		l.part = append(l.part, line[:min(len(line), longestLine-len(l.part))]...)
		rest = after
		if whole {
			l.line(string(bytes.TrimSpace(l.part)))
			l.part = l.part[:0]
		}
	}
	return len(p), nil
}

func (l *lineLog) line(text string) {
	level := slog.LevelDebug
	if m := stamp.FindStringSubmatchIndex(text); m != nil {
		if text[m[2]] == '#' && l.serving.Load() {
			level = slog.LevelWarn
		}
		text = text[m[1]:]
	}
	if text == "" {
		return
	}
	if l.last = append(l.last, text); len(l.last) > keptLines {
		l.last = slices.Delete(l.last, 0, 1)
	}
	l.log.Log(context.Background(), level, "redis-server: "+text)
}

// tail returns the last lines.
func (l *lineLog) tail() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.last)
}
