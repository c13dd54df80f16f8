// Command bench prints how rollcall compares with the design that people build by hand on Redis, and with the floor below which
// no such service can go. Everything is measured side by side on one machine, in turns, and reported as medians and ratios.
//
//	bench [-rounds 3] [-events 1000000] [-seconds 4] [-rollcall bin/rollcall] [a] [b] [c] [lag]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"
)

type settings struct {
	rounds  int
	events  int
	seconds time.Duration
	binary  string
}

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "load":
			exit(loadMain())
		case "server":
			redisAddr := ""
			if len(os.Args) > 3 {
				redisAddr = os.Args[3]
			}
			exit(serverMain(os.Args[2], redisAddr))
		}
	}
	var s settings
	secs := flag.Float64("seconds", 4, "length of one HTTP run")
	flag.IntVar(&s.rounds, "rounds", 3, "runs of each; the median is printed")
	flag.IntVar(&s.events, "events", 1_000_000, "events in one projector run; the naive design gets a tenth")
	flag.StringVar(&s.binary, "rollcall", "bin/rollcall", "the built binary")
	flag.Parse()
	s.seconds = time.Duration(*secs * float64(time.Second))
	parts := flag.Args()
	if len(parts) == 0 {
		parts = []string{"a", "b", "c", "lag"}
	}
	fmt.Printf("%d cores, %s, %d rounds, medians\n", runtime.NumCPU(), runtime.Version(), s.rounds)
	ctx := context.Background()
	for _, p := range parts {
		var err error
		switch p {
		case "a":
			err = partA(ctx, s)
		case "b":
			err = partB(ctx, s)
		case "c":
			err = partC(ctx, s)
		case "lag":
			err = partLag(ctx, s)
		default:
			err = fmt.Errorf("no part %q: a, b, c or lag", p)
		}
		if err != nil {
			exit(err)
		}
	}
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// median of a figure over the rounds.
func median[T any](runs []T, figure func(T) float64) float64 {
	var f []float64
	for _, r := range runs {
		f = append(f, figure(r))
	}
	slices.Sort(f)
	return f[len(f)/2]
}

func partA(ctx context.Context, s settings) error {
	fmt.Printf("\n(a) journal -> Redis, %d events, against one go-redis pipeline per event from 64 goroutines\n", s.events)
	var naive, ids, plain []pipeRun
	for range s.rounds {
		r, err := runNaive(ctx, s.events/10)
		if err != nil {
			return fmt.Errorf("naive: %w", err)
		}
		naive = append(naive, r)
		if r, err = runProjector(ctx, s.events, true); err != nil {
			return fmt.Errorf("projector with ids: %w", err)
		}
		ids = append(ids, r)
		if r, err = runProjector(ctx, s.events, false); err != nil {
			return fmt.Errorf("projector without ids: %w", err)
		}
		plain = append(plain, r)
	}
	rate := func(r pipeRun) float64 { return r.Rate }
	base := median(naive, rate)
	fmt.Printf("%-26s %12s %8s %14s %14s %12s\n", "", "events/s", "ratio", "Redis µs/ev", "process µs/ev", "journal B/ev")
	row := func(name string, runs []pipeRun) {
		fmt.Printf("%-26s %12.0f %7.1fx %14.2f %14.2f %12.1f\n", name, median(runs, rate), median(runs, rate)/base,
			median(runs, func(r pipeRun) float64 { return r.RedisCPU }), median(runs, func(r pipeRun) float64 { return r.OwnCPU }),
			median(runs, func(r pipeRun) float64 { return r.Journal }))
	}
	row("naive, 64 goroutines", naive)
	row("projector, ids", ids)
	row("projector, no ids", plain)
	return nil
}
