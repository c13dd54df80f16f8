package counters

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/realtest"
)

// plain is the sketch that users make.
func plain(users ...string) *registers {
	r := new(registers)
	for _, u := range users {
		m := markOf(u)
		r[m.register] = max(r[m.register], m.value)
	}
	return r
}

// randomUser has between 1 and 40 bytes of any value but NUL.
func randomUser(rnd *rand.Rand) string {
	b := make([]byte, 1+rnd.IntN(40))
	for i := range b {
		b[i] = byte(1 + rnd.IntN(255))
	}
	return string(b)
}

// sketchAt reads the registers of a stored sketch; absent is empty.
func sketchAt(t testing.TB, rdb redis.Cmdable, key string) (*registers, string) {
	t.Helper()
	s, err := rdb.Get(context.Background(), key).Result()
	if err != nil && err != redis.Nil {
		t.Fatalf("GET %s: %v", key, err)
	}
	r := new(registers)
	if err := r.read(s); err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return r, s
}

func sameRegisters(t testing.TB, what string, got, want *registers) {
	t.Helper()
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: register %d is %d, want %d", what, i, got[i], want[i])
		}
	}
}

func TestRegistersAgreeWithRedis(t *testing.T) {
	ctx, rdb := context.Background(), realtest.Redis(t).Client()
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 10, 100, 700, 3000, 20000, 100000} {
		key := fmt.Sprintf("s%d", n)
		var users []string
		pipe := rdb.Pipeline()
		for i := range n {
			u := randomUser(rnd)
			if i%3 == 0 {
				u = fmt.Sprintf("user-%d", i)
			}
			users = append(users, u)
			pipe.PFAdd(ctx, key, u)
		}
		if n == 0 {
			pipe.PFAdd(ctx, key)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		got, stored := sketchAt(t, rdb, key)
		if wantDense := n >= 3000; (stored[4] == 0) != wantDense {
			t.Errorf("%d users: encoding %d, the test wants both", n, stored[4])
		}
		sameRegisters(t, fmt.Sprintf("%d users", n), got, plain(users...))
	}
}

func TestDamagedSketchIsAnError(t *testing.T) {
	ctx, rdb := context.Background(), realtest.Redis(t).Client()
	rdb.PFAdd(ctx, "k", "a", "b", "c")
	sparse := rdb.Get(ctx, "k").Val()
	dense := "HYLL\x00" + strings.Repeat("\x00", hllDense-5)
	var r registers
	for _, ok := range []string{"", sparse, dense} {
		if err := r.read(ok); err != nil {
			t.Errorf("sound sketch of %d bytes: %v", len(ok), err)
		}
	}
	for name, s := range map[string]string{
		"a counter": "5", "half a header": "HYLL\x01", "cut sparse": sparse[:len(sparse)-1], "longer sparse": sparse + "x",
		"longer dense": dense + "x", "cut dense": dense[:len(dense)-1], "other magic": "hyll" + sparse[4:], "other encoding": "HYLL\x02" + sparse[5:],
		"header alone": sparse[:hllHeader], "half an opcode": sparse[:hllHeader] + "\x7f", "a long run": sparse[:hllHeader] + "\x7f\xff\x00",
	} {
		if err := r.read(s); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzReadSketch(f *testing.F) {
	f.Add("HYLL\x01" + strings.Repeat("\x00", 11) + "\x7f\xff")
	f.Add("HYLL\x00" + strings.Repeat("\x00", hllDense-5))
	f.Fuzz(func(t *testing.T, s string) {
		var r registers
		if r.read(s) != nil {
			return
		}
		for i, v := range r {
			if v > 63 {
				t.Fatalf("register %d is %d", i, v)
			}
		}
	})
}

func BenchmarkMark(b *testing.B) {
	u := "user-1234567"
	for range b.N {
		markOf(u)
	}
}
