package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/rollcall/rollcall/ingest/files"
)

// source is a file that is read as rows.
type source struct {
	*files.Source
	file *os.File
	size int64 // bytes of the file
}

// openSource opens a file of the format and fields that the flags name.
func openSource(path string, f importFlags) (*source, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file: the same import could not be run again", path)
	}
	var rows *files.Source
	if err == nil {
		rows, err = files.Open(file, files.Options{
			Format: f.format, Name: filepath.Base(path), Event: f.event, User: f.user, TS: f.ts, Value: f.value, ID: f.id, Props: f.props,
		})
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return &source{rows, file, info.Size()}, nil
}

// Close closes the file.
func (s *source) Close() error { return s.file.Close() }
