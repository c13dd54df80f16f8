package users

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/projection"
)

// Batches are cut at random, half of them reach only some shards and begin a new epoch: the sets must be the model's all the same, also when
// the memory for mirrors holds hardly any.
func TestModel(t *testing.T) {
	for seed, mirrors := range []int64{defaultMirrorBytes, defaultMirrorBytes, 20_000, 1} {
		t.Run(fmt.Sprintf("seed=%d/mirrors=%d", seed, mirrors), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(uint64(seed), 11))
			d := newDriver(t, at(t, "2026-10-29T20:00:00Z")) // New York's clock goes back on 1 November
			d.p.o.MirrorBytes = mirrors
			d.random(rnd, 250)
			d.RunHurt(rnd, 14)
			d.check()
			// The same journal, once more into a Redis that has it: nothing changes.
			d.Restart()
			d.Run(1000)
			d.check()
			if d.p.held > mirrors && mirrors > 1000 {
				t.Errorf("%d bytes of mirrors are held, the limit is %d", d.p.held, mirrors)
			}
		})
	}
}

// A late event makes a user new on an earlier day than was known, and the day that called it new loses it.
func TestLateEventMovesTheFirstDay(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	d.write(view("u1", at(t, "2026-11-30T10:00:00Z")))
	d.Run(10)
	d.check()
	d.write(view("u1", at(t, "2026-11-27T10:00:00Z")), view("u2", at(t, "2026-11-27T10:00:00Z")))
	d.Run(10)
	d.check()
	d.write(view("u1", at(t, "2026-11-28T10:00:00Z"))) // between: no first day
	d.Run(10)
	d.check()
	d.write(view("u1", at(t, "2026-11-25T10:00:00Z")), view("u1", at(t, "2026-11-24T10:00:00Z")), view("u1", at(t, "2026-11-26T10:00:00Z")))
	d.Run(10)
	d.check()
	if n := d.first("2026-11-24"); n != 1 {
		t.Errorf("%d new users on the 24th, want 1", n)
	}
	for _, day := range []string{"2026-11-25", "2026-11-26", "2026-11-28", "2026-11-30"} {
		if n := d.first(day); n != 0 {
			t.Errorf("%d new users on %s, want 0", n, day)
		}
	}
}

// first counts the First sets of demo's day.
func (d *driver) first(day string) (n uint64) {
	d.t.Helper()
	for shard := range testShards {
		stored, err := d.RDB.Get(context.Background(), setKey(keyBase(shard, "demo"), First, "*", day)).Result()
		if err != nil {
			continue
		}
		set, err := decode(stored)
		if err != nil {
			d.t.Fatal(err)
		}
		n += set.bits.GetCardinality()
	}
	return n
}

// What is damaged stops the projection, with the key's name, and is never written back.
func TestBM04_DamageStopsAndStays(t *testing.T) {
	ctx := context.Background()
	for name, hurt := range map[string]func(string) string{
		"truncated": func(s string) string { return s[:len(s)-1] },
		"empty":     func(string) string { return "" },
		"foreign":   func(string) string { return "\x01\x3b\x30\x00\x00 and forty bytes of something else, here" },
		"later":     func(s string) string { return "\x02" + s[1:] },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
			for i := range 40 {
				d.write(view(fmt.Sprint("u", i), at(t, "2026-11-30T10:00:00Z")))
			}
			d.Run(100)
			var key string
			for shard := range testShards {
				key = setKey(keyBase(shard, "demo"), Active, "*", "2026-11-30")
				if d.RDB.Exists(ctx, key).Val() == 1 {
					break
				}
			}
			bad := hurt(d.RDB.Get(ctx, key).Val())
			d.RDB.Set(ctx, key, bad, 0)
			d.Restart()
			for i := range 40 {
				d.write(view(fmt.Sprint("v", i), at(t, "2026-11-30T10:00:00Z")))
			}
			err := d.Batch(100, nil)
			if !errors.Is(err, projection.ErrDamaged) {
				t.Errorf("error %v, want one of damage", err)
			}
			if got := d.RDB.Get(ctx, key).Val(); got != bad {
				t.Errorf("%s was written: %q", key, got)
			}
		})
	}
}

// A key that may go before the commit is written whole, with a new time.
func TestExpiryWhileTheMirrorLives(t *testing.T) {
	ctx := context.Background()
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	d.write(view("u1", at(t, "2026-11-30T10:00:00Z")), view("u2", at(t, "2026-11-30T10:00:00Z")))
	d.Run(10)
	keys, _ := d.RDB.Keys(ctx, "rc:{*}:users:demo:on:*").Result()
	d.RDB.Del(ctx, keys...)
	d.clock.Set(at(t, "2028-01-05T00:00:00Z")) // 400 days are over
	d.write(view("u1", at(t, "2026-11-30T10:00:00Z")), view("u2", at(t, "2026-11-30T10:00:00Z")), view("u3", at(t, "2026-11-30T10:00:00Z")))
	d.Run(10)
	n := 0
	for _, key := range keys {
		if d.RDB.Exists(ctx, key).Val() == 0 {
			continue
		}
		n++
		if ttl := d.RDB.TTL(ctx, key).Val(); ttl < time.Hour {
			t.Errorf("%s has TTL %v", key, ttl)
		}
	}
	if n == 0 {
		t.Error("no set was written again")
	}
}

func TestSinceIsTheFirstEvent(t *testing.T) {
	ctx := context.Background()
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	d.write(view("u1", at(t, "2026-11-30T10:00:00Z")))
	d.Run(10)
	since := d.clock.Now().UnixMilli()
	d.clock.Add(time.Hour)
	d.exact["demo"] = []string{"*", "a:b"} // configured meanwhile
	d.write(view("u1", at(t, "2026-11-30T10:00:00Z")))
	d.Run(10)
	got := d.RDB.HGetAll(ctx, sinceKey(keyBase(homeOf(testShards, "demo"), "demo"))).Val()
	if len(got) != 3 || got[""] != fmt.Sprint(since) || got["*"] != fmt.Sprint(since) || got["a%3ab"] != fmt.Sprint(d.clock.Now().UnixMilli()) {
		t.Errorf("since %v", got)
	}
	for _, exact := range [][]string{{"*"}, {"*", "a:b"}} { // taken away and given back: what lies between is not known
		d.exact["demo"] = exact
		d.clock.Add(time.Hour)
		d.write(view("u1", at(t, "2026-11-30T10:00:00Z")))
		d.Run(10)
	}
	got = d.RDB.HGetAll(ctx, sinceKey(keyBase(homeOf(testShards, "demo"), "demo"))).Val()
	if len(got) != 3 || got[""] != fmt.Sprint(since) || got["a%3ab"] != fmt.Sprint(d.clock.Now().UnixMilli()) {
		t.Errorf("since %v after the event was without sets for an hour", got)
	}
}

// Writing a member costs at most 64 bytes, however large the set is, and users who are in cost nothing.
func TestWriteAmplification(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	rnd := rand.New(rand.NewPCG(5, 5))
	const members = 200_000
	order := rnd.Perm(members)
	batch := func(users []int) {
		events := make([]event.Event, len(users))
		for i, u := range users {
			events[i] = view(fmt.Sprint(u), at(t, "2026-11-30T10:00:00Z"))
		}
		d.write(events...)
	}
	all := make([]int, members)
	for i := range all {
		all[i] = i
	}
	for len(all) > 0 { // an earlier day, so that ordinals are there and in another order
		events := make([]event.Event, min(5000, len(all)))
		for i := range events {
			events[i] = view(fmt.Sprint(all[i]), at(t, "2026-11-29T10:00:00Z"))
		}
		d.write(events...)
		all = all[len(events):]
	}
	d.Run(1)
	before := d.Bytes
	for at := 0; at < members; at += 2000 {
		batch(order[at : at+2000])
		d.Run(1)
	}
	if each := float64(d.Bytes-before) / members; each > 64 {
		t.Errorf("%.1f bytes written for each new member, want at most 64", each)
	} else {
		t.Logf("%.1f bytes written for each new member", each)
	}
	before = d.Bytes
	batch(order[:5000])
	d.Run(1)
	if n := d.Bytes - before; n != 0 {
		t.Errorf("%d bytes written for users who are in", n)
	}
}

// When a day has been over for a while, its sets have no tails.
func TestTailsOfPastDaysAreFolded(t *testing.T) {
	ctx := context.Background()
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	tails := func() (n int) {
		for _, key := range d.RDB.Keys(ctx, "rc:{*}:users:demo:on:*:2026-11-30").Val() {
			set, err := decode(d.RDB.Get(ctx, key).Val())
			if err != nil {
				t.Fatal(err)
			}
			n += set.tail
		}
		return n
	}
	for i := range 200 {
		d.write(view(fmt.Sprint("u", i), at(t, "2026-11-30T10:00:00Z")))
		d.Run(1)
	}
	if tails() == 0 {
		t.Fatal("no tails: the test wants some")
	}
	d.clock.Set(at(t, "2026-12-01T00:11:00Z"))
	d.write(view("u1", d.clock.Now()))
	d.Run(1)
	if n := tails(); n != 0 {
		t.Errorf("%d bytes of tails are left", n)
	}
	d.check()
}

// The projection reads nothing for users who are new to the project on a day that it knows.
func TestNewUsersCostNoRead(t *testing.T) {
	d := newDriver(t, at(t, "2026-11-30T12:00:00Z"))
	for i := range 40 {
		d.write(view(fmt.Sprint("u", i), at(t, "2026-11-30T10:00:00Z")))
	}
	d.Run(100)
	e := view("u41", at(t, "2026-11-30T10:00:00Z"))
	e.Project, e.Name, e.Ordinal, e.First = "demo", "page_view", 1000, true
	tx := projection.NewTx(testShards, nil, noRead(t))
	if err := d.p.Project(context.Background(), &projection.Batch{Records: []projection.Record{{Seq: 100, Received: d.clock.Now().UnixMilli(), Events: []event.Event{e}}}}, tx); err != nil {
		t.Fatal(err)
	}
	if len(tx.Commands(0)) == 0 {
		t.Error("nothing was written")
	}
}
