package redisx

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	aofFolder = "appendonlydir" // of Redis 7 and Valkey; older ones have a single file and are left alone
	aofList   = "appendonly.aof.manifest"

	// A torn tail is a transaction or a second of them. More than this was not torn by a crash: it needs a look by the operator.
	mostTorn = 64 << 20
)

// mendAOF makes the incremental files in dir end behind a whole transaction, as a power loss may not leave them. It must run while
// no redis-server has them open. Redis cuts a torn tail by itself, but wrongly in two cases (seen with 7.0.15):
//
//   - Within MULTI … EXEC, which is how the writes of a script are stored, it keeps the first commands of the transaction, and the
//     MULTI that stays open. The transactions appended next become part of it, and at the start after that the torn half is carried
//     out with them: what it had to count is counted twice.
//   - In a file that is not the last, after a power loss while a rewrite begins, it cuts the tail, refuses the start, and takes the
//     files at the start after that, without what the tail held.
//
// So everything behind the last whole transaction goes, in this file and in those that follow: a state that was, offsets included.
// What was cut is kept in "<file>.cut-<unix seconds>", at most 64 MiB, until the next time.
//
// An error is an ErrUnfit where only the operator can help: an open MULTI with others appended to it, more than 64 MiB to cut.
func mendAOF(ctx context.Context, dir string, log *slog.Logger) error {
	folder := filepath.Join(dir, aofFolder)
	paths, err := incrementals(folder)
	for i := 0; i < len(paths) && err == nil; i++ {
		var end ending
		var size int64
		end, size, err = examine(ctx, paths[i])
		switch {
		case err != nil:
		case end.nested:
			return unfitError{fmt.Sprintf("the append-only file %s has a transaction without an end at byte %d, and more was written behind it "+
				"by a Redis that was started without rollcall: loading it would count the torn half again. %s",
				paths[i], end.open, cutByHand(folder, paths[i:], end.whole))}
		case end.damaged: // Redis refuses it, and diagnose says so
			return nil
		case end.whole < size:
			return cutFrom(folder, paths[i:], end.whole, log)
		}
	}
	if errors.Is(err, fs.ErrNotExist) { // a new folder, an old Redis; or a file is missing, and Redis says so
		return nil
	}
	return err
}

// incrementals returns the files that hold what was written since the base, oldest first.
func incrementals(folder string) ([]string, error) {
	list, err := os.Open(filepath.Join(folder, aofList))
	if err != nil {
		return nil, err
	}
	defer list.Close()
	var paths []string
	// A list that Redis cannot read is left to it: it has a line per file, "file appendonly.aof.1.incr.aof seq 1 type i", the
	// incremental ones in order.
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		field := map[string]string{}
		for i := 0; i+1 < len(words); i += 2 {
			field[words[i]] = words[i+1]
		}
		if name := field["file"]; field["type"] == "i" && name == filepath.Base(name) {
			paths = append(paths, filepath.Join(folder, name))
		}
	}
	return paths, lines.Err()
}

// examine scans a file.
func examine(ctx context.Context, path string) (ending, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return ending{}, 0, err
	}
	defer f.Close()
	end, err := scanAOF(readerFunc(func(p []byte) (int, error) {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		return f.Read(p)
	}))
	if err != nil {
		return end, 0, fmt.Errorf("read the append-only file %s: %w", path, err)
	}
	info, err := f.Stat()
	if err != nil {
		return end, 0, err
	}
	return end, info.Size(), nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// cutFrom cuts the first file at whole and empties the others.
func cutFrom(folder string, paths []string, whole int64, log *slog.Logger) error {
	total := -whole
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		total += info.Size()
	}
	if total > mostTorn {
		return unfitError{fmt.Sprintf("the append-only file %s is broken off or damaged behind byte %d, with %d bytes behind that: "+
			"more than a crash tears. %s", paths[0], whole, total, cutByHand(folder, paths, whole))}
	}
	forget(folder)
	// The first comes last: until it is cut, a start after a crash in here does the rest.
	for i := len(paths) - 1; i >= 0; i-- {
		from := int64(0)
		if i == 0 {
			from = whole
		}
		if err := cut(paths[i], from, log); err != nil {
			return fmt.Errorf("cut the append-only file %s behind its last whole transaction: %w", paths[i], err)
		}
	}
	return nil
}

// forget removes what earlier cuts have kept, where it can.
func forget(folder string) {
	entries, _ := os.ReadDir(folder)
	for _, e := range entries {
		if strings.Contains(e.Name(), ".aof.cut-") {
			_ = os.Remove(filepath.Join(folder, e.Name()))
		}
	}
}

// cut truncates a file, and keeps what goes if the disk has room for it.
func cut(path string, from int64, log *slog.Logger) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil || info.Size() == from {
		return err
	}
	kept := fmt.Sprintf("%s.cut-%d", path, time.Now().Unix())
	if err := keep(kept, io.NewSectionReader(f, from, info.Size()-from)); err != nil {
		log.Warn("what is cut off the append-only file cannot be kept", "error", err)
		_ = os.Remove(kept)
		kept = ""
	}
	if err := f.Truncate(from); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	log.Warn("the append-only file broke off within a transaction, as after a power loss: what stood behind the last whole one is cut, "+
		"and is counted again from the journal", "file", path, "at", from, "bytes", info.Size()-from, "kept", kept)
	return nil
}

func keep(path string, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Sync(), f.Close())
}

// cutByHand tells the operator how to do what mendAOF does not dare.
func cutByHand(folder string, paths []string, whole int64) string {
	text := fmt.Sprintf("Copy %s aside, then cut there: truncate -s %d %s", folder, whole, paths[0])
	for _, path := range paths[1:] {
		text += "; truncate -s 0 " + path
	}
	return text + ". What that cuts off is counted again from the journal"
}
