package ingest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/event"
)

// realistic is n page views as lines.
func realistic(n int) []byte {
	r := rand.New(rand.NewPCG(9, 10))
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `{"id":"%08x-%04x-4%03x-8%03x-%012x","event":"page_view","user":"u%07d","ts":"%s","props":{"page":"/book/%d","channel":"%s"}}`+"\n",
			r.Uint32(), r.Uint32()&0xffff, r.Uint32()&0xfff, r.Uint32()&0xfff, r.Uint64()&(1<<48-1), r.IntN(5_000_000),
			time.UnixMilli(noon-int64(n-i)*37).In(time.FixedZone("", 8*3600)).Format("2006-01-02T15:04:05.000Z07:00"), r.IntN(20_000), []string{"ios", "android", "web"}[r.IntN(3)])
	}
	return b.Bytes()
}

// BenchmarkJudge reads 1,000 events as lines, and one alone, into a chunk; encoding/json only decodes the same lines into a struct.
// ratio is how many times longer encoding/json takes.
func BenchmarkJudge(b *testing.B) {
	for _, n := range []int{1, 1000} {
		body := realistic(n)
		var bld event.Builder
		judge := func() {
			bld.Reset("demo", noon, false, false)
			if v, err := Judge(body, Rules{Now: noon}, &bld); err != nil || v.Accepted != n {
				b.Fatalf("%+v %v", v, err)
			}
		}
		type plain struct {
			ID, Event, User string
			TS              time.Time
			Value           *float64
			Props           map[string]any
		}
		std := func() {
			for line := range bytes.Lines(body) {
				var e plain
				if err := json.Unmarshal(line, &e); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.Run(fmt.Sprintf("events=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for range b.N {
				judge()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/event")
			b.StopTimer()
			ours := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
			rounds := max(1, 3000/n)
			start := time.Now()
			for range rounds {
				std()
			}
			b.ReportMetric(float64(time.Since(start).Nanoseconds())/float64(rounds)/ours, "ratio")
		})
	}
}
