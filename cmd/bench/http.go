package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/ingest"
	"github.com/rollcall/rollcall/internal/event"
)

// judgeOnly is the floor under a batch: our own parsing and judging, and nothing after it.
func judgeOnly() gin.HandlerFunc {
	return func(c *gin.Context) {
		body, err := io.ReadAll(c.Request.Body)
		if err != nil {
			c.Status(http.StatusBadRequest)
			return
		}
		var b event.Builder
		now := time.Now().UnixMilli()
		b.Reset("demo", now, false, false)
		v, err := ingest.Judge(body, ingest.Rules{Now: now, LateWindow: 7 * 24 * time.Hour, Limits: ingest.DefaultLimits()}, &b)
		if err != nil {
			c.Status(http.StatusBadRequest)
			return
		}
		c.JSON(http.StatusAccepted, gin.H{"received": v.Received, "accepted": b.Len()})
	}
}

// target is a server under load.
type target struct {
	name  string
	path  string
	addr  string
	pid   int
	redis redis.UniversalClient // nil if it has none
	stop  func() error
}

// comparison starts one of the servers to compare with.
func comparison(ctx context.Context, kind, path string) (*target, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if kind != "naive" {
		p, err := start(self, "server", kind)
		if err != nil {
			return nil, err
		}
		return &target{name: kind, path: path, addr: p.addr, pid: p.cmd.Process.Pid, stop: p.stop}, nil
	}
	r, done, err := freshRedis(ctx)
	if err != nil {
		return nil, err
	}
	addr, err := overTCP(ctx, r.Commit)
	if err != nil {
		return nil, err
	}
	p, err := start(self, "server", kind, addr)
	if err != nil {
		return nil, err
	}
	return &target{name: kind, path: path, addr: p.addr, pid: p.cmd.Process.Pid, redis: r.Commit, stop: func() error {
		defer done()
		return p.stop()
	}}, nil
}

// product starts the real binary with its default set-up.
func product(s settings) (*target, string, error) {
	dir, err := os.MkdirTemp("", "rollcall-bench")
	if err != nil {
		return nil, "", err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, "", err
	}
	cmd := exec.Command(s.binary, "serve", "--data", dir, "--listen", addr)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, "", err
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("%w (build it first: make build)", err)
	}
	t := &target{name: "rollcall", addr: addr, pid: cmd.Process.Pid, stop: func() error {
		p := proc{cmd: cmd}
		return errors.Join(p.stop(), os.RemoveAll(dir))
	}}
	for range 400 {
		time.Sleep(25 * time.Millisecond)
		res, err := http.Get("http://" + addr + "/readyz")
		if err != nil {
			continue
		}
		res.Body.Close()
		if res.StatusCode == http.StatusOK {
			key, err := os.ReadFile(filepath.Join(dir, "write.key"))
			t.path = "/v1/events?key=" + strings.TrimSpace(string(key))
			return t, dir, err
		}
	}
	out, _ := os.ReadFile(log.Name())
	return nil, "", errors.Join(fmt.Errorf("rollcall did not become ready:\n%s", out), t.stop())
}

// httpRun is one run of load against a target.
type httpRun struct {
	loadResult
	CPU  float64 // µs of the server process per event
	Peak float64 // MiB
}

var seed int

func hit(t *target, s settings, conns, batch, rate int) (httpRun, error) {
	seed++
	c0, err := cpu(t.pid)
	if err != nil {
		return httpRun{}, err
	}
	res, err := runLoad(loadSpec{Addr: t.addr, Path: t.path, Conns: conns, Batch: batch, Duration: s.seconds, Rate: rate, Seed: seed})
	if err != nil {
		return httpRun{}, fmt.Errorf("%s: %w", t.name, err)
	}
	if res.Failed > 0 {
		return httpRun{}, fmt.Errorf("%s: %d of %d requests failed", t.name, res.Failed, res.Requests)
	}
	c1, err := cpu(t.pid)
	if err != nil {
		return httpRun{}, err
	}
	_, peak, err := rss(t.pid)
	return httpRun{res, (c1 - c0) / float64(res.Events) * 1e6, peak}, err
}

// sideBySide runs every server in turn, once a round, each started fresh.
func sideBySide(ctx context.Context, s settings, conns, batch int, kinds []string, path string) (map[string][]httpRun, error) {
	runs := map[string][]httpRun{}
	for range s.rounds {
		for _, kind := range kinds {
			var t *target
			var err error
			switch kind {
			case "rollcall":
				t, _, err = product(s)
			case "judge":
				t, err = comparison(ctx, kind, "/judge")
			default:
				t, err = comparison(ctx, kind, path)
			}
			if err != nil {
				return nil, err
			}
			r, err := hit(t, s, conns, batch, 0)
			if err := errors.Join(err, t.stop()); err != nil {
				return nil, err
			}
			runs[kind] = append(runs[kind], r)
		}
	}
	return runs, nil
}

func printHTTP(runs map[string][]httpRun, kinds []string, names map[string]string) {
	rate := func(r httpRun) float64 { return r.eventRate() }
	own := median(runs["rollcall"], rate)
	fmt.Printf("%-34s %12s %16s %9s %9s %13s %9s\n", "", "events/s", "rollcall is", "p50 ms", "p99 ms", "server µs/ev", "peak MiB")
	for _, k := range kinds {
		r := runs[k]
		ratio := ""
		if k != "rollcall" {
			ratio = fmt.Sprintf("%.2fx", own/median(r, rate))
		}
		fmt.Printf("%-34s %12.0f %16s %9.2f %9.2f %13.2f %9.0f\n", names[k], median(r, rate), ratio,
			median(r, func(r httpRun) float64 { return r.P50 }), median(r, func(r httpRun) float64 { return r.P99 }),
			median(r, func(r httpRun) float64 { return r.CPU }), median(r, func(r httpRun) float64 { return r.Peak }))
	}
}

func partB(ctx context.Context, s settings) error {
	kinds := []string{"rollcall", "decode", "naive"}
	for _, conns := range []int{64, 256} {
		fmt.Printf("\n(b) one event a request, answered after fsync, %d connections\n", conns)
		runs, err := sideBySide(ctx, s, conns, 1, kinds, "/one")
		if err != nil {
			return err
		}
		printHTTP(runs, kinds, map[string]string{"rollcall": "rollcall", "decode": "gin that only decodes", "naive": "gin with the naive pipeline"})
	}
	return nil
}

func partC(ctx context.Context, s settings) error {
	kinds := []string{"rollcall", "judge", "decode", "naive"}
	fmt.Printf("\n(c) 1,000-event NDJSON batches, answered after fsync, 16 connections\n")
	runs, err := sideBySide(ctx, s, 16, 1000, kinds, "/batch")
	if err != nil {
		return err
	}
	printHTTP(runs, kinds, map[string]string{"rollcall": "rollcall", "judge": "gin, our judging alone",
		"decode": "gin, encoding/json alone", "naive": "gin with the naive pipeline"})
	return nil
}

// partLag measures, at half of the highest rate of single events, how long after its answer an event shows in a query.
func partLag(ctx context.Context, s settings) error {
	t, dir, err := product(s)
	if err != nil {
		return err
	}
	defer func() {
		if err := t.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	}()
	full, err := hit(t, s, 64, 1, 0)
	if err != nil {
		return err
	}
	half := int(full.eventRate() / 2)
	fmt.Printf("\n(lag) from the answer 202 to the event in /v1/counts, at half load (%d of %.0f events/s)\n", half, full.eventRate())
	read, err := os.ReadFile(filepath.Join(dir, "read.key"))
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	var loadErr error
	var under httpRun
	s.seconds *= 2
	wg.Go(func() { under, loadErr = hit(t, s, 64, 1, half) })
	var lags []float64
	for n, began := 0, time.Now(); time.Since(began) < s.seconds-time.Second; n++ {
		lag, err := probe(t, strings.TrimSpace(string(read)), fmt.Sprintf("probe-%d", n))
		if err != nil {
			return err
		}
		lags = append(lags, lag)
	}
	wg.Wait()
	if loadErr != nil {
		return loadErr
	}
	slices.Sort(lags)
	now, peak, err := rss(t.pid)
	fmt.Printf("%d probes: p50 %.1f ms, p99 %.1f ms; answers under that load p50 %.2f ms, p99 %.2f ms; RSS %.0f MiB, peak %.0f MiB\n",
		len(lags), lags[len(lags)/2], lags[len(lags)*99/100], under.P50, under.P99, now, peak)
	return err
}

// probe sends one event of a name of its own and asks until it is counted; the answer is in ms.
func probe(t *target, readKey, name string) (float64, error) {
	res, err := http.Post("http://"+t.addr+t.path, "application/json", strings.NewReader(`{"event":"`+name+`"}`))
	if err != nil {
		return 0, err
	}
	res.Body.Close()
	sent := time.Now()
	if res.StatusCode != http.StatusAccepted {
		return 0, fmt.Errorf("probe was answered %s", res.Status)
	}
	day := sent.UTC().Truncate(24 * time.Hour)
	url := fmt.Sprintf("http://%s/v1/counts?event=%s&from=%s&to=%s&interval=day&key=%s", t.addr, name,
		day.Format(time.DateOnly), day.Add(24*time.Hour).Format(time.DateOnly), readKey)
	for time.Since(sent) < 10*time.Second {
		res, err := http.Get(url)
		if err != nil {
			return 0, err
		}
		var got struct {
			Total struct{ PV int64 }
		}
		err = json.NewDecoder(res.Body).Decode(&got)
		res.Body.Close()
		if err != nil {
			return 0, err
		}
		if got.Total.PV == 1 {
			return float64(time.Since(sent).Microseconds()) / 1000, nil
		}
		time.Sleep(2 * time.Millisecond)
	}
	return 0, fmt.Errorf("%s was not counted within 10 s", name)
}
