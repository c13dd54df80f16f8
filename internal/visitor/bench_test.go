package visitor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rollcall/rollcall/internal/clock"
)

func BenchmarkAddress(b *testing.B) {
	p := mustProxies(b, "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "2001:db8::/32")
	for name, xff := range map[string][]string{
		"direct":   nil,
		"one":      {"198.51.100.7"},
		"port":     {"[2001:db9::7]:44321"},
		"hops":     {"1.1.1.1, 198.51.100.7, 10.3.3.3", "10.4.4.4"},
		"hostile":  {strings.Repeat("10.1.1.1,", 100_000)},
		"too-long": {strings.Repeat("x", 1<<20)},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Address("10.0.0.2:80", xff)
			}
		})
	}
}

func BenchmarkIs(b *testing.B) {
	all := agents(b)
	b.Run("cached", func(b *testing.B) {
		bots := NewBots(0)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			bots.Is(all[i%len(all)].text, true)
		}
	})
	b.Run("uncached", func(b *testing.B) {
		bots := NewBots(0)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			bots.judge(all[i%len(all)].text)
		}
	})
	r := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, maxAgent)
	for i := range noise {
		noise[i] = byte(' ' + r.IntN(95))
	}
	for name, ua := range map[string]string{
		"noise":  "Mozilla/5.0 " + string(noise),
		"needs":  "Mozilla/5.0 " + strings.Repeat("bw/dlc ort/ perl1 time/1 x/1.0 news sapphire @a", 30),
		"word":   "Mozilla/5.0 " + strings.Repeat("x", maxAgent-20) + "/1.0;",
		"google": "Mozilla/5.0 " + strings.Repeat(" google pixel", 100),
		"utf8":   "Mozilla/5.0 " + strings.Repeat("\xff", maxAgent),
	} {
		b.Run("hostile-"+name, func(b *testing.B) {
			bots := NewBots(1)
			b.ReportAllocs()
			for b.Loop() {
				bots.judge(ua[:min(len(ua), maxAgent)])
			}
		})
	}
}

func BenchmarkAnonymous(b *testing.B) {
	salt, ip, ua := [32]byte{1}, netip.MustParseAddr("198.51.100.7"), agents(b)[0].text
	b.ReportAllocs()
	for b.Loop() {
		Anonymous(salt, ip, ua)
	}
}

func BenchmarkDaily(b *testing.B) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	s := NewSalts(newMemory(), clock.NewManual(now))
	projects := make([]string, 100)
	for i := range projects {
		projects[i] = fmt.Sprint("p", i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := s.Daily(context.Background(), projects[i%100], "2026-11-30"); err != nil {
			b.Fatal(err)
		}
	}
}
