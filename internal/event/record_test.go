package event_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/rollcall/rollcall/internal/event"
)

func randomEvent(rng *rand.Rand, project string, received int64, historical bool) event.Event {
	e := event.Event{Project: project, Received: received, Historical: historical,
		Name: fmt.Sprintf("event-%d", rng.IntN(12)), Time: received - rng.Int64N(1e10) + 1e5}
	if rng.IntN(4) > 0 {
		e.User = fmt.Sprintf("用户-%d", rng.IntN(1000))
	}
	if rng.IntN(2) > 0 {
		e.ID = fmt.Sprintf("%032x", rng.Uint64())
	}
	if rng.IntN(3) == 0 {
		e.Value = fmt.Sprintf("%d.25", rng.IntN(100))
	}
	for i := range rng.IntN(4) {
		switch rng.IntN(4) {
		case 0:
			e.Props.Append(fmt.Sprint("k", i), event.String, strings.Repeat("v", rng.IntN(event.MaxPropValue+1)))
		case 1:
			e.Props.Append(fmt.Sprint("k", i), event.Number, "9007199254740993")
		case 2:
			e.Props.Append(fmt.Sprint("k", i), event.True, "")
		case 3:
			e.Props.Append(strings.Repeat("k", event.MaxPropKey), event.False, "")
		}
	}
	return e
}

func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var r event.Record
	for round := range 200 {
		h := event.Header{Producer: rng.Uint64(), Number: rng.Uint64(), Received: 1796081400000 + int64(round)}
		var want []event.Event
		var chunks [][]byte
		var infos []event.ChunkInfo
		for c := range 1 + rng.IntN(4) {
			var b event.Builder
			project, hist, notify := fmt.Sprint("project-", c), rng.IntN(2) == 0, rng.IntN(2) == 0
			b.Reset(project, h.Received, hist, notify)
			infos = append(infos, event.ChunkInfo{First: len(want), Notify: notify})
			for range rng.IntN(50) {
				e := randomEvent(rng, project, h.Received, hist)
				b.Add(&e)
				want = append(want, e)
				infos[c].Count++
			}
			if b.Len() != infos[c].Count {
				t.Fatalf("Len %d, want %d", b.Len(), infos[c].Count)
			}
			chunks = append(chunks, b.Bytes())
		}
		data := event.AppendRecord([]byte("x"), h, chunks...)[1:]
		if err := r.Decode(data); err != nil {
			t.Fatal(err)
		}
		if r.Header != h || !reflect.DeepEqual(r.Chunks, infos) {
			t.Fatalf("got %+v %+v, want %+v %+v", r.Header, r.Chunks, h, infos)
		}
		if len(want) != len(r.Events) {
			t.Fatalf("%d events, want %d", len(r.Events), len(want))
		}
		for i := range want {
			if !reflect.DeepEqual(r.Events[i], want[i]) {
				t.Fatalf("event %d: got %+v, want %+v", i, r.Events[i], want[i])
			}
		}
		if got, sum, err := event.ReadHeader(data); err != nil || got != h || sum != r.Sum {
			t.Fatalf("ReadHeader: %+v %x %v, want %+v %x", got, sum, err, h, r.Sum)
		}
	}
}

func sample() []byte {
	var b event.Builder
	b.Reset("demo", 1796081400000, false, true)
	e := event.Event{Name: "page_view", User: "u42", ID: "8f1c", Value: "12.5", Time: 1796081399000}
	e.Props.Append("page", event.String, "/book/7")
	e.Props.Append("n", event.Number, "9007199254740993")
	b.Add(&e)
	b.Add(&event.Event{Name: "阅读", Time: 1796081400500})
	return event.AppendRecord(nil, event.Header{Producer: 7, Number: 9, Received: 1796081400000}, b.Bytes())
}

// What version 1 wrote is read for ever.
func TestGoldenVersion1(t *testing.T) {
	const golden = "72630163142aa007000000000000000900000000000000c038cb2ea201000057f056020464656d6fc0f1acf6a234020f0009706167655f76696577d0" +
		"0f0375343204386631630431322e3522730470616765072f626f6f6b2f376e016e1039303037313939323534373430393933000006e99885e8afbbe707"
	data, err := hex.DecodeString(golden)
	if err != nil {
		t.Fatal(err)
	}
	var got, want event.Record
	if err := got.Decode(data); err != nil {
		t.Fatalf("%v; a record made now is %x", err, sample())
	}
	if err := want.Decode(sample()); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Events, want.Events) || got.Header != want.Header {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

func TestEveryFlippedBitIsFound(t *testing.T) {
	good := sample()
	var r event.Record
	for i := range len(good) * 8 {
		bad := append([]byte(nil), good...)
		bad[i/8] ^= 1 << (i % 8)
		if err := r.Decode(bad); !errors.Is(err, event.ErrDamaged) && !errors.Is(err, event.ErrVersion) {
			t.Fatalf("bit %d flipped: %v", i, err)
		}
	}
	for i := range good {
		if err := r.Decode(good[:i]); !errors.Is(err, event.ErrDamaged) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
}

func FuzzRecordDecode(f *testing.F) {
	f.Add(sample()[31:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		// The checksum is made right, so that the fuzzer reaches what lies behind it.
		data := event.AppendRecord(nil, event.Header{}, body)
		var r event.Record
		if err := r.Decode(data); err != nil {
			if !errors.Is(err, event.ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		for _, c := range r.Chunks {
			if c.Count == 0 {
				continue
			}
			events := r.Events[c.First : c.First+c.Count]
			var b event.Builder
			b.Reset(events[0].Project, events[0].Received, events[0].Historical, c.Notify)
			for i := range events {
				b.Add(&events[i])
			}
			var again event.Record
			if err := again.Decode(event.AppendRecord(nil, event.Header{}, b.Bytes())); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(again.Events, events) {
				t.Fatalf("got %+v, want %+v", again.Events, events)
			}
		}
	})
}

func benchRecord(n int) ([]byte, int) {
	var b event.Builder
	b.Reset("demo", 1796081400000, false, false)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		e := event.Event{Name: "page_view", User: fmt.Sprint("user-", rng.IntN(50_000)), Time: 1796081400000 - rng.Int64N(2000),
			ID: fmt.Sprintf("%08x-0000-4000-8000-%012x", rng.Uint32(), i)}
		e.Props.Append("page", event.String, fmt.Sprint("/book/", rng.IntN(20)))
		e.Props.Append("channel", event.String, "ios")
		b.Add(&e)
	}
	return event.AppendRecord(nil, event.Header{}, b.Bytes()), b.Size()
}

func BenchmarkDecode(b *testing.B) {
	data, size := benchRecord(1000)
	var r event.Record
	b.ReportAllocs()
	for i := 0; i < b.N; i += 1000 {
		if err := r.Decode(data); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(data))/1000, "B/event")
	b.ReportMetric(float64(size)/1000, "rawB/event")
}
