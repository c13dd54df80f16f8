package memo

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/projection"
)

const maxAbsent = 50_000 // of some 150 bytes

// Absent remembers users whom a project never had, so that asking for one again costs no reading. A user who comes is forgotten before anybody is
// told that he is in; a node that does not project learns of it when the time is up. Safe for concurrent use. Make it with NewAbsent.
type Absent struct {
	clock clock.Clock

	mu    sync.Mutex
	users *simplelru.LRU[user, time.Time] // until when
	came  uint64                          // how many users have come
}

type user struct{ project, id string }

// NewAbsent makes an Absent.
func NewAbsent(c clock.Clock) *Absent {
	users, err := simplelru.NewLRU[user, time.Time](maxAbsent, nil)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &Absent{clock: c, users: users}
}

// Has tells whether a user is known to be absent. If not, what Note takes.
func (a *Absent) Has(project, id string) (absent bool, ticket uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	until, ok := a.users.Get(user{project, id})
	return ok && a.clock.Now().Before(until), a.came
}

// Note remembers that a user was looked for in vain. It is left out if users have come since the ticket was drawn: he may be one of them.
func (a *Absent) Note(project, id string, ticket uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ticket == a.came {
		a.users.Add(user{project, id}, a.clock.Now().Add(keepFor))
	}
}

// Committed forgets those who have come with these records; see Memo.Committed.
func (a *Absent) Committed(records []projection.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range records {
		for j := range records[i].Events {
			if e := &records[i].Events[j]; e.First {
				a.came++
				a.users.Remove(user{e.Project, e.User})
			}
		}
	}
}
