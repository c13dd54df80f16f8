// Package obs is how a running rollcall is watched: the log and the metrics registry.
package obs

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/mattn/go-isatty"
)

// NewLog returns a logger that writes to w. level is debug, info, warn or error; format is text, json, or auto, which is text
// when w is a terminal and JSON otherwise.
func NewLog(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("obs: log level: %w", err)
	}
	opt := &slog.HandlerOptions{Level: l}
	if format == "text" || format == "auto" && IsTerminal(w) {
		return slog.New(slog.NewTextHandler(w, opt)), nil
	}
	return slog.New(slog.NewJSONHandler(w, opt)), nil
}

// IsTerminal tells whether somebody is looking at w.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
