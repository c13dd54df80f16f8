package dedup

import (
	"errors"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/event"
)

// A full disk stops the store and hurts nothing; it goes on when there is room.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	real := room
	t.Cleanup(func() { room = real })
	full := func(string) error { return ErrNoRoom }
	o := Options{Dir: dir, Identity: "j", Window: time.Hour}

	room = full
	if _, err := Open(o); !errors.Is(err, ErrNoRoom) {
		t.Fatalf("open: %v, want ErrNoRoom", err)
	}
	room = real
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	r := &event.Record{Events: []event.Event{{Project: "demo", ID: "a"}}}
	if _, err := s.Judge(1, r); err != nil {
		t.Fatal(err)
	}
	room = full
	if err := s.Flush(); !errors.Is(err, ErrNoRoom) {
		t.Fatalf("flush: %v, want ErrNoRoom", err)
	}
	room = real
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(o); err != nil || s.Offset() != 1 {
		t.Fatalf("reopened at %d, %v; want 1", s.Offset(), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
