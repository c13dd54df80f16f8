package memo

import (
	"fmt"
	"testing"

	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/projection"
)

func TestAbsentUsers(t *testing.T) {
	c := clock.NewManual(now)
	a := NewAbsent(c)
	absent := func(project, user string) bool {
		is, _ := a.Has(project, user)
		return is
	}
	note := func(project, user string) {
		_, ticket := a.Has(project, user)
		a.Note(project, user, ticket)
	}
	come := func(project, user string, first bool) {
		a.Committed([]projection.Record{{Events: []event.Event{{Project: project, User: user, First: first}}}})
	}
	note("demo", "u1")
	note("demo", "u2")
	if !absent("demo", "u1") || absent("two", "u1") {
		t.Error("u1 of demo is absent, and nobody else")
	}
	come("demo", "u3", false)
	come("two", "u1", true)
	come("demo", "u2", true)
	if !absent("demo", "u1") || absent("demo", "u2") {
		t.Error("u2 has come, u1 has not")
	}
	_, ticket := a.Has("demo", "u9")
	come("demo", "u9", true) // between the reading and the note
	a.Note("demo", "u9", ticket)
	if absent("demo", "u9") {
		t.Error("u9 came while he was looked for")
	}
	c.Add(keepFor)
	if absent("demo", "u1") {
		t.Error("the time is up")
	}
	for i := range 2 * maxAbsent {
		note("demo", fmt.Sprint(i))
	}
	if n := a.users.Len(); n > maxAbsent {
		t.Errorf("%d users are remembered", n)
	}
}
