package ingest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/event"
)

// realisticSegment is a batch of n page views with what a browser's SDK puts beside them.
func realisticSegment(n int) []byte {
	r := rand.New(rand.NewPCG(9, 10))
	var b bytes.Buffer
	b.WriteString(`{"batch":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		page := r.IntN(20_000)
		fmt.Fprintf(&b, `{"timestamp":"%s","integrations":{},"type":"page","properties":{"path":"/book/%d","referrer":"https://search.example/","search":"?from=list","title":"Book %d","url":"https://shop.example/book/%d?from=list"},`+
			`"context":{"page":{"path":"/book/%d","title":"Book"},"userAgent":"Mozilla/5.0 (X11; Linux x86_64)","locale":"zh-CN","library":{"name":"analytics.js","version":"next-1.70.0"}},`+
			`"messageId":"ajs-next-%d-%08x-%04x-4%03x-8%03x-%012x","userId":"u%07d","anonymousId":"%08x"}`,
			time.UnixMilli(noon-int64(n-i)*37).UTC().Format("2006-01-02T15:04:05.000Z07:00"), page, page, page, page,
			noon, r.Uint32(), r.Uint32()&0xffff, r.Uint32()&0xfff, r.Uint32()&0xfff, r.Uint64()&(1<<48-1), r.IntN(5_000_000), r.Uint32())
	}
	b.WriteString(`],"sentAt":"2026-11-30T12:00:00.000Z","writeKey":"k"}`)
	return b.Bytes()
}

// BenchmarkJudgeSegment reads 1,000 messages of a browser's SDK in one batch. ratio is how many times longer it takes a byte than
// Judge takes for its own form.
func BenchmarkJudgeSegment(b *testing.B) {
	const n = 1000
	body, native := realisticSegment(n), realistic(n)
	var bld event.Builder
	b.ReportAllocs()
	b.ResetTimer()
	b.SetBytes(int64(len(body)))
	for range b.N {
		bld.Reset("demo", noon, false, false)
		if v, err := JudgeSegment(body, CallBatch, Rules{Now: noon}, &bld); err != nil || v.Accepted != n {
			b.Fatalf("%+v %v", v, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/event")
	b.StopTimer()
	ours := float64(b.Elapsed().Nanoseconds()) / float64(b.N*len(body))
	const rounds = 20
	start := time.Now()
	for range rounds {
		bld.Reset("demo", noon, false, false)
		if v, err := Judge(native, Rules{Now: noon}, &bld); err != nil || v.Accepted != n {
			b.Fatalf("%+v %v", v, err)
		}
	}
	b.ReportMetric(ours/(float64(time.Since(start).Nanoseconds())/float64(rounds*len(native))), "ratio")
}
