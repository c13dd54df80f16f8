package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rollcall/rollcall/ingest/drops"
	"github.com/rollcall/rollcall/internal/realtest"
)

// books is what a client knows of what it sent.
type books struct {
	*server
	want drops.Sums
	ids  int // given so far
}

func openBooks(s *server) *books {
	return &books{server: s, want: drops.Sums{Rejected: map[string]int64{}}}
}

// request sends fresh events, repeated ones, and rejected ones by code. Its answer must add up.
func (b *books) request(fresh, again int, agent string, rejected map[string]string) {
	b.t.Helper()
	var body strings.Builder
	total := fresh + again + len(rejected)
	for range again {
		fmt.Fprintf(&body, `{"event":"d","id":"%d"}`+"\n", rand.IntN(b.ids))
	}
	for range fresh {
		fmt.Fprintf(&body, `{"event":"d","user":"u","id":"%d"}`+"\n", b.ids)
		b.ids++
	}
	for _, bad := range rejected {
		body.WriteString(bad + "\n")
	}
	status, a := b.post("", body.String(), "User-Agent", agent)
	if want := map[bool]int{true: 202, false: 422}[fresh+again > 0]; status != want || a.Received != total || a.Accepted+a.Bots != fresh+again || len(a.Rejected) != len(rejected) {
		b.t.Fatalf("answer %d %+v to %d fresh, %d again, %d bad", status, a, fresh, again, len(rejected))
	}
	b.want.Received += int64(total)
	b.want.Duplicates += int64(again)
	if agent == googlebot {
		b.want.Bots += int64(fresh)
	} else {
		b.want.Accepted += int64(fresh)
	}
	for code := range rejected {
		b.want.Rejected[code]++
	}
}

const googlebot = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"

// bad events by the code they get.
var (
	oneBad = map[string]string{"too_late": `{"event":"d","ts":"2020-01-01T00:00:00Z"}`}
	allBad = map[string]string{"placeholder_user": `{"event":"d","user":"null"}`, "missing_event": `{"user":"u"}`, "malformed": `{"event":`}
)

// mix sends requests of every kind.
func (b *books) mix() {
	b.t.Helper()
	b.request(20, 0, browserAgent, nil)
	b.request(5, 3, browserAgent, oneBad)
	b.request(4, 2, googlebot, oneBad)
	b.request(0, 4, googlebot, allBad)
	b.request(1, 0, browserAgent, nil)
}

func (b *books) drops() (d drops.Drops, ok bool) {
	b.t.Helper()
	res, err := http.Get(b.url + "/v1/drops?period=6h&key=" + b.key(readName))
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusServiceUnavailable {
		return d, false
	}
	if err := json.NewDecoder(res.Body).Decode(&d); err != nil || res.StatusCode != 200 {
		b.t.Fatalf("drops: %d %v", res.StatusCode, err)
	}
	return d, true
}

// exact waits until as much is accounted for as was sent, and compares.
func (b *books) exact() {
	b.t.Helper()
	var d drops.Drops
	until(b.t, fmt.Sprint(b.want.Received, " events accounted for"), func() (ok bool) {
		d, ok = b.drops()
		return ok && d.Total.Received >= b.want.Received
	})
	if got, want := fmt.Sprint(d.Total.Sums), fmt.Sprint(b.want); got != want {
		b.t.Errorf("drops say %s, want %s", got, want)
	}
	var sum drops.Sums
	for _, r := range d.Rows {
		if r.Received != r.Accepted+r.Duplicates+r.Bots+r.RejectedTotal() {
			b.t.Errorf("%+v does not add up", r)
		}
		sum.Received += r.Received
	}
	if sum.Received != d.Total.Received {
		b.t.Errorf("the rows have %d events, the total %d", sum.Received, d.Total.Received)
	}
}

func TestDropsAccountForEverything(t *testing.T) {
	s := start(t, t.TempDir())
	b := openBooks(s)
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	for round := range 4 {
		for range 10 {
			b.request(0, 0, browserAgent, allBad)
		}
		b.mix()
		b.exact() // so that what a kill may lose, a second of requests in which nothing was good, is written
		b.mix()
		switch round {
		case 0:
			s.kill()
			b.server = start(t, s.dir)
		case 1:
			killRedis(t, b.server)
		default:
			b.server = kill9(t, b.server, rng) // Redis loses the end of its file as well
		}
		b.mix()
		b.exact()
	}
	// Not even that second is lost by a stop in order.
	b.request(0, 0, browserAgent, allBad)
	b.server.stop()
	b.server = start(t, s.dir)
	b.exact()
	// The dedup store is lost: everything is judged again.
	b.server.stop()
	if err := os.RemoveAll(filepath.Join(s.dir, "dedup")); err != nil {
		t.Fatal(err)
	}
	b.server = start(t, s.dir)
	b.mix()
	b.exact()
	if status, a := b.post("?dry_run=1", `[{"event":"d"},{"event":""}]`); status != 200 || a.Received != 2 {
		t.Errorf("dry run: %d %+v", status, a)
	}
	b.request(1, 0, browserAgent, nil)
	b.exact()
	b.commandSays()
	b.metricsSay()
	if pv, _, ok := b.counts("d"); !ok || pv != b.want.Accepted {
		t.Errorf("PV %d, want %d: what is accepted and no bot's", pv, b.want.Accepted)
	}
	b.server.stop()
}

// commandSays compares the table, the JSON and the CSV of rollcall drops.
func (b *books) commandSays() {
	t := b.t
	t.Helper()
	w := &b.want
	out, errs, code := cli(t, b.dir, "drops", "--period", "6h")
	line := func(cells ...any) string { return strings.Join(strings.Fields(fmt.Sprintln(cells...)), " ") }
	has := map[string]bool{}
	for l := range strings.Lines(out) {
		has[line(l)] = true
	}
	if code != 0 || !has[line("total", w.Received, w.Accepted, w.Duplicates, w.Bots, w.RejectedTotal())] {
		t.Errorf("drops: exit %d\n%s%s", code, out, errs)
	}
	for code, n := range w.Rejected {
		if !has[line(code, n)] {
			t.Errorf("drops lacks %s %d:\n%s", code, n, out)
		}
	}
	if rows := strings.Count(out, ":"); rows > 60 {
		t.Errorf("rows without events should be left out:\n%s", out)
	}
	out, errs, code = cli(t, b.dir, "drops", "--period", "6h", "--json")
	var d drops.Drops
	if err := json.Unmarshal([]byte(out), &d); code != 0 || err != nil || fmt.Sprint(d.Total.Sums) != fmt.Sprint(*w) {
		t.Errorf("drops --json: exit %d, %v, %+v %s", code, err, d.Total, errs)
	}
	out, errs, code = cli(t, b.dir, "drops", "--period", "6h", "--csv")
	table, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if code != 0 || err != nil || len(table) != 361 {
		t.Fatalf("drops --csv: exit %d, %v, %d lines %s", code, err, len(table), errs)
	}
	sums := map[string]int64{}
	for _, row := range table[1:] {
		for i, name := range table[0] {
			if n, err := strconv.ParseInt(row[i], 10, 64); err == nil {
				sums[name] += n
			}
		}
	}
	want := map[string]int64{"received": w.Received, "accepted": w.Accepted, "duplicates": w.Duplicates, "bots": w.Bots, "rejected": w.RejectedTotal()}
	for code, n := range w.Rejected {
		want["rejected_"+code] = n
	}
	if !maps.Equal(sums, want) {
		t.Errorf("drops --csv: %v, want %v", sums, want)
	}
	if _, errs, code := cli(t, b.dir, "drops", "--period", "soon"); code != 1 || !strings.Contains(errs, "bad_period") {
		t.Errorf("drops --period soon: exit %d %s", code, errs)
	}
}

// metricsSay: the metrics are those of this process, and add up.
func (b *books) metricsSay() {
	t := b.t
	t.Helper()
	get := func(name string) float64 { return b.metric("rollcall_ingest_" + name + "_total{project=\"demo\"}") }
	rejected := 0.0
	for code := range b.want.Rejected {
		rejected += b.metric(fmt.Sprintf("rollcall_ingest_rejected_total{code=%q,project=\"demo\"}", code))
	}
	if got := get("accepted") + get("duplicates") + get("bots") + rejected; got != get("received") || rejected == 0 || get("bots") == 0 {
		t.Errorf("received %v, what became of them %v, rejected %v, bots %v", get("received"), got, rejected, get("bots"))
	}
}

// An install from before there was drop accounting: it is made from the journal, and the counts stay as they are.
func TestDropsJoinAnOldInstall(t *testing.T) {
	own := realtest.Redis(t)
	rdb, at := own.Client(), "--redis.url=redis://"+own.Addr
	s := start(t, t.TempDir(), at)
	b := openBooks(s)
	b.mix()
	b.exact()
	s.counted("d", b.want.Accepted, 1)
	s.stop()
	dropped := 0
	for _, pattern := range []string{"rc:{*}:drops:*", "rc:{*}:meta:drops"} {
		keys, err := rdb.Keys(t.Context(), pattern).Result()
		if err != nil {
			t.Fatal(err)
		}
		dropped += len(keys)
		for _, key := range keys {
			if err := rdb.Del(t.Context(), key).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if dropped < 16+2 {
		t.Fatalf("%d keys of drops, want the places of 16 shards and two hashes", dropped)
	}
	b.server = start(t, s.dir, at)
	b.exact()
	b.mix()
	b.exact()
	b.counted("d", b.want.Accepted, 1)
	b.server.stop()

	for _, args := range [][]string{{"rebuild", "drops"}, {"rebuild", "drops", "--partial"}, {"rebuild", "counters"}, {"rebuild", "all"}} {
		if out, errs, code := cli(t, s.dir, append(args, at)...); code != 0 {
			t.Fatalf("%v: exit %d\n%s%s", args, code, out, errs)
		}
		b.server = start(t, s.dir, at)
		b.exact()
		b.counted("d", b.want.Accepted, 1)
		b.server.stop()
	}
	if _, errs, code := cli(t, s.dir, "rebuild", "counters", "--partial", at); code != 1 || !strings.Contains(errs, "drops") {
		t.Errorf("rebuild counters --partial: exit %d %s", code, errs)
	}
}
