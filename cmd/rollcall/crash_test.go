package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/realtest"
)

// crashSize is how many events the crash test sends and how often it kills; `make crash` raises both.
func crashSize(t *testing.T) (events, kills int) {
	t.Helper()
	events, kills = 60_000, 4
	for name, v := range map[string]*int{"ROLLCALL_CRASH_EVENTS": &events, "ROLLCALL_CRASH_KILLS": &kills} {
		if s := os.Getenv(name); s != "" {
			n, err := strconv.Atoi(s)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			*v = n
		}
	}
	return events, kills
}

// crowd sends events until each is accepted, and knows what must come out.
type crowd struct {
	url  atomic.Pointer[string]
	key  string
	from time.Time

	mu    sync.Mutex
	pv    map[string]int             // by event and day
	users map[string]map[string]bool // by event and day
	sent  int
	again int // requests that had to be repeated
}

const perRequest = 50

// request makes the n-th request: five names, three days, and every tenth event one of the request before, sent again.
func (c *crowd) request(n int) string {
	var b strings.Builder
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range perRequest {
		id, fresh := n*perRequest+i, true
		if i%10 == 9 && n >= 8 {
			id, fresh = (n-8)*perRequest+i-1, false // accepted before, or on its way
		}
		day := c.from.Add(time.Duration(id%3) * 24 * time.Hour)
		name, user := fmt.Sprintf("event-%d", id%5), fmt.Sprintf("user-%d", id*2654435761%20011)
		fmt.Fprintf(&b, `{"id":"id-%d","event":"%s","user":"%s","ts":"%s"}`+"\n", id, name, user, day.Format(time.RFC3339))
		if fresh {
			k := name + ":" + day.Format(time.DateOnly)
			c.pv[k]++
			if c.users[k] == nil {
				c.users[k] = map[string]bool{}
			}
			c.users[k][user] = true
			c.sent++
		}
	}
	return b.String()
}

// deliver repeats a request until it is accepted, as an app with a queue does.
func (c *crowd) deliver(ctx context.Context, client *http.Client, body string) error {
	for try := 0; ; try++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if try > 0 {
			c.mu.Lock()
			c.again++
			c.mu.Unlock()
			time.Sleep(20 * time.Millisecond)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, *c.url.Load()+"/v1/events", strings.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+c.key)
		res, err := client.Do(req)
		if err != nil {
			continue
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		switch {
		case err != nil || res.StatusCode == http.StatusServiceUnavailable:
		case res.StatusCode == http.StatusAccepted && bytes.Contains(text, fmt.Appendf(nil, `"accepted":%d`, perRequest)):
			return nil
		default:
			return fmt.Errorf("answer %d %s", res.StatusCode, text)
		}
	}
}

// run sends requests from several connections until ctx is done or all are sent.
func (c *crowd) run(ctx context.Context, requests int) error {
	var next atomic.Int64
	errs := make(chan error, 8)
	for range cap(errs) {
		client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{}}
		go func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= requests {
					errs <- nil
					return
				}
				if err := c.deliver(ctx, client, c.request(n)); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// kill9 ends the server, and with it its Redis, at a random moment, lets the append-only file lose its tail, and starts again.
func kill9(t *testing.T, s *server, rng *rand.Rand) *server {
	t.Helper()
	s.kill()
	if rng.IntN(3) > 0 {
		cutTail(t, s.dir, rng.Int64N(60_000))
	}
	return start(t, s.dir)
}

// cutTail drops the end of what the managed Redis wrote: what it had not fsynced when the machine died.
func cutTail(t *testing.T, dir string, n int64) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "redis", "*", "*.incr.aof"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no append-only file below %s (%v)", dir, err)
	}
	sort.Strings(paths)
	path := paths[len(paths)-1]
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, max(info.Size()-n, 0)); err != nil {
		t.Fatal(err)
	}
}

// killRedis ends the managed Redis alone; the server starts it again.
func killRedis(t *testing.T, s *server) {
	t.Helper()
	info, err := s.redis().Info(t.Context(), "server").Result()
	if err != nil {
		return // it is just coming up again
	}
	_, rest, _ := strings.Cut(info, "process_id:")
	pid, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
		t.Fatal(err)
	}
}

// TestCrash kills everything at random while beacons flow. In the end every accepted event is counted, and counted once.
func TestCrash(t *testing.T) {
	events, kills := crashSize(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, %d events, %d kills", seed, events, kills)
	rng := rand.New(rand.NewPCG(seed, 0))
	s := start(t, t.TempDir())
	c := &crowd{key: s.key(writeName), from: time.Now().UTC().Add(-72 * time.Hour), pv: map[string]int{}, users: map[string]map[string]bool{}}
	c.url.Store(&s.url)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.run(ctx, events/perRequest) }()

	// The kills are spread over the sending.
	for k := range kills {
		at := events / (kills + 1) * (k + 1)
		until(t, fmt.Sprint(at, " events sent"), func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.sent >= at*9/10
		})
		if k%2 == 0 {
			s = kill9(t, s, rng)
			c.url.Store(&s.url)
		} else {
			killRedis(t, s)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if c.again == 0 && kills > 0 {
		t.Fatal("no request had to be repeated: nothing was killed while beacons flowed")
	}
	settled(t, s, c)
	compare(t, s, c)
	compareUsers(t, s, c)

	// Everything once more, after a clean restart: all duplicates.
	s.stop()
	s = start(t, s.dir)
	body := c.requestAgain(3)
	status, a := s.post("?wait=30s", body)
	if status != http.StatusAccepted || a.Duplicates != perRequest {
		t.Fatalf("an old request sent again: %d %+v, want %d duplicates", status, a, perRequest)
	}
	compare(t, s, c)
	compareUsers(t, s, c)
	s.stop()
}

// requestAgain is a request that was sent before; nothing new is expected of it.
func (c *crowd) requestAgain(n int) string {
	silent := &crowd{from: c.from, pv: map[string]int{}, users: map[string]map[string]bool{}}
	return silent.request(n)
}

// settled waits until the projector has passed everything.
func settled(t *testing.T, s *server, c *crowd) {
	t.Helper()
	total := 0
	for _, n := range c.pv {
		total += n
	}
	until(t, fmt.Sprint(total, " events counted"), func() bool {
		res, err := http.Get(s.url + "/v1/counts?event=*&key=" + s.key(readName))
		if err != nil {
			return false
		}
		defer res.Body.Close()
		var got series // nothing of it while Redis is coming up again
		return json.NewDecoder(res.Body).Decode(&got) == nil && got.Total.PV >= int64(total)
	})
}

// compare holds every count against the truth, and every sketch, register by register, against one made by plain PFADD.
func compare(t *testing.T, s *server, c *crowd) {
	t.Helper()
	ctx := t.Context()
	own := s.redis()
	clean := realtest.Redis(t, "hll-sparse-max-bytes 0").Client()
	for k, want := range c.pv {
		name, day, _ := strings.Cut(k, ":")
		hours, err := own.HGetAll(ctx, found(t, own, "rc:{*}:counters:demo:pv:"+name+":"+day)).Result()
		if err != nil {
			t.Fatal(err)
		}
		got, late := 0, 0
		for field, h := range hours {
			n, err := strconv.Atoi(h)
			if err != nil {
				t.Fatal(err)
			}
			switch field {
			case "late":
				late = n
			case "late_at":
			default:
				got += n
			}
		}
		if got != want || late != want { // all days are over
			t.Errorf("PV of %s: %d, of them late %d; want %d", k, got, late, want)
		}
		stored, err := own.Get(ctx, found(t, own, "rc:{*}:counters:demo:uv:"+name+":"+day)).Result()
		if err != nil {
			t.Fatal(err)
		}
		users := make([]any, 0, len(c.users[k]))
		for u := range c.users[k] {
			users = append(users, u)
		}
		pipe := clean.TxPipeline()
		pipe.FlushAll(ctx)
		pipe.Set(ctx, "stored", stored, 0)
		pipe.PFMerge(ctx, "a", "stored") // dense, so that equal registers are equal bytes
		pipe.PFAdd(ctx, "b", users...)
		a, b := pipe.Get(ctx, "a"), pipe.Get(ctx, "b")
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		if a.Val()[16:] != b.Val()[16:] {
			t.Errorf("the sketch of %s differs from a clean one", k)
		}
	}
}

// compareUsers holds the exact users of each day, and of all days together, against the truth.
func compareUsers(t *testing.T, s *server, c *crowd) {
	t.Helper()
	days, all := map[string]map[string]bool{}, map[string]bool{}
	for k, users := range c.users {
		_, day, _ := strings.Cut(k, ":")
		if days[day] == nil {
			days[day] = map[string]bool{}
		}
		maps.Copy(days[day], users)
		maps.Copy(all, users)
	}
	var got string
	want := fmt.Sprint("total ", len(all))
	for _, day := range slices.Sorted(maps.Keys(days)) {
		want += fmt.Sprint(", ", day, " ", len(days[day]))
	}
	path := "/v1/users?from=" + c.from.Format(time.DateOnly) + "&to=" + c.from.AddDate(0, 0, 3).Format(time.DateOnly)
	until(t, want, func() bool { // its shards are committed beside those of counters
		var u struct {
			Rows []struct {
				Label string
				Exact struct{ Value int }
			}
			Total struct{ Exact struct{ Value int } }
		}
		s.ask(path, &u)
		got = fmt.Sprint("total ", u.Total.Exact.Value)
		for _, r := range u.Rows {
			got += fmt.Sprint(", ", r.Label, " ", r.Exact.Value)
		}
		return got == want
	})
}

// found is the one key that matches.
func found(t *testing.T, c *redis.Client, pattern string) string {
	t.Helper()
	keys, err := c.Keys(t.Context(), pattern).Result()
	if err != nil || len(keys) != 1 {
		t.Fatalf("%s: %v %v, want one key", pattern, keys, err)
	}
	return keys[0]
}
