package journal

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("JOURNAL_CHILD"); dir != "" {
		child(dir)
	}
	os.Exit(m.Run())
}

// childQuota makes JetStream choose blocks of 32,000 bytes while trims go on.
func childQuota(trim bool) int64 {
	if trim {
		return hurtQuota
	}
	return 32 << 20
}

// child appends until it is killed and prints each event id once it is acknowledged, with its sequence. With JOURNAL_TRIM it
// also removes all but the last records again and again.
func child(dir string) {
	pad, _ := strconv.Atoi(os.Getenv("JOURNAL_PAD"))
	trim := os.Getenv("JOURNAL_TRIM") != ""
	j, err := Open(context.Background(), Options{Dir: dir, MaxBytes: childQuota(trim), MaxAge: 1, Slack: 1, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	var wg sync.WaitGroup
	for p := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d-%d-%d", os.Getpid(), p, i)
				r, err := j.Append(context.Background(), chunk(pad, id))
				if err != nil {
					fmt.Println(err)
					os.Exit(1)
				}
				fmt.Println(id, r.Seq)
				if trim && i%5 == 4 {
					if err := j.Trim(context.Background(), max(r.Seq, 4)-3); err != nil {
						fmt.Println(err)
						os.Exit(1)
					}
				}
			}
		})
	}
	wg.Wait()
}

// killed runs a child on a folder and kills it with SIGKILL after n acknowledgements. It returns the sequences of the
// acknowledged ids.
func killed(t *testing.T, dir string, n int, env ...string) (acked map[string]uint64) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), "JOURNAL_CHILD="+dir), env...)
	acked = make(map[string]uint64)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		id, seq, _ := strings.Cut(lines.Text(), " ")
		var err error
		if acked[id], err = strconv.ParseUint(seq, 10, 64); err != nil {
			t.Fatalf("the child says %q", lines.Text())
		}
		if len(acked) == n {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	cmd.Wait()
	if len(acked) < n {
		t.Fatalf("the child ended by itself after %d appends", len(acked))
	}
	return acked
}

func TestKillNineLosesNothing(t *testing.T) {
	dir := t.TempDir()
	acked := map[string]uint64{}
	for _, n := range []int{1, 50, 700} {
		maps.Copy(acked, killed(t, dir, n, "JOURNAL_PAD=3000"))
	}
	wantAcked(t, dir, false, acked)
}

// A kill in the middle of a trim neither loses what is kept nor makes the guard cry out.
func TestKillNineWhileTrimming(t *testing.T) {
	dir := t.TempDir()
	for n := range 8 {
		wantAcked(t, dir, true, killed(t, dir, 100+37*n, "JOURNAL_PAD=800", "JOURNAL_TRIM=1"))
	}
}

// wantAcked opens the folder of a killed child: what was acknowledged and not trimmed is there, once, at its sequence.
func wantAcked(t *testing.T, dir string, trim bool, acked map[string]uint64) {
	t.Helper()
	j := opened(t, Options{Dir: dir, MaxBytes: childQuota(trim)})
	first, last := bounds(t, j)
	entries, err := readAll(t, j, first)
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]uint64{}
	for _, e := range entries {
		for _, id := range ids(t, []Entry{e}) {
			if there[id] != 0 {
				t.Fatalf("event %q is there twice", id)
			}
			there[id] = e.Seq
		}
	}
	for id, seq := range acked {
		if seq >= first && there[id] != seq {
			t.Fatalf("acknowledged event %q is at %d, want %d", id, there[id], seq)
		}
	}
	if r := appended(t, j, chunk(0, "after")); r.Seq != last+1 {
		t.Fatalf("the next record is %d, want %d", r.Seq, last+1)
	}
	closed(t, j)
}
