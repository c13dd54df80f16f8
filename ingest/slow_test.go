package ingest

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/rollcall/rollcall/internal/apperr"
)

// Large bodies that never end take a bounded part of memory; small ones pass beside them, and the places come back.
func TestStalledLargeBodies(t *testing.T) {
	const limit = 4 << 20
	bs := newBodies(limit)
	var ends []*io.PipeWriter
	done := make(chan error)
	for range largeBodies {
		r, w := io.Pipe()
		go func() {
			_, release, err := bs.read(context.Background(), r, "")
			release()
			done <- err
		}()
		if _, err := w.Write(bytes.Repeat([]byte(" "), smallBody+100)); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, w)
	}
	large := bytes.Repeat([]byte("x"), smallBody+100)
	_, release, err := bs.read(context.Background(), bytes.NewReader(large), "")
	release()
	if e := apperr.As(err); e.Code != CodeBusy || e.Kind != apperr.Unavailable || e.RetryAfter == 0 {
		t.Fatalf("one large body more: %v, want %s", err, CodeBusy)
	}
	if b, release, err := bs.read(context.Background(), bytes.NewReader([]byte("{}")), ""); err != nil || string(b) != "{}" {
		t.Fatalf("a small body: %q %v", b, err)
	} else {
		release()
	}
	for _, w := range ends {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	b, release, err := bs.read(context.Background(), bytes.NewReader(large), "")
	if err != nil || !bytes.Equal(b, large) {
		t.Fatalf("when they have gone: %d bytes, %v", len(b), err)
	}
	release()
}
