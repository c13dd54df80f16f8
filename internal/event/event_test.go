package event

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// randomText is text of up to n bytes, now and then empty.
func randomText(r *rand.Rand, n int) string {
	b := make([]rune, 0, n)
	for size := 0; len(b) < r.IntN(n); {
		c := []rune("abcé阅😀 %{\"\\0123")[r.IntN(15)]
		if size += len(string(c)); size > n {
			break
		}
		b = append(b, c)
	}
	return string(b)
}

func randomUUID(r *rand.Rand) string {
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", r.Uint32(), r.Uint32()&0xffff, r.Uint32()&0xffff, r.Uint32()&0xffff, r.Uint64()&(1<<48-1))
}

func randomEvent(r *rand.Rand, received int64) Event {
	e := Event{Name: "n" + randomText(r, MaxName-1), Time: received}
	if r.IntN(3) > 0 {
		e.Name = fmt.Sprintf("event_%d", r.IntN(50))
	}
	if r.IntN(4) > 0 {
		e.User = randomText(r, MaxUser)
	}
	switch r.IntN(4) {
	case 0:
		e.ID = randomText(r, MaxID)
	case 1:
		e.ID = randomUUID(r)
	case 2:
		e.ID = strings.ToUpper(randomUUID(r))
	}
	if r.IntN(3) == 0 {
		e.Value = fmt.Sprint(r.Float64())
	}
	if r.IntN(3) > 0 {
		e.Time += r.Int64N(1e12) - 9e11
	}
	for range r.IntN(MaxProps) * r.IntN(2) {
		k := []Kind{String, Number, True, False}[r.IntN(4)]
		v := ""
		if k == String || k == Number {
			v = randomText(r, 200)
		}
		e.Props.Append(randomText(r, MaxPropKey), k, v)
	}
	return e
}

// TestRoundTrip: whatever goes in comes out, chunk by chunk, also when a Builder and a Record are used again.
func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	builders := make([]Builder, 5)
	var rec Record
	var buf []byte
	for round := range 400 {
		h := Header{Producer: r.Uint64(), Number: r.Uint64(), Received: r.Int64()}
		var want []Event
		var infos []ChunkInfo
		var chunks [][]byte
		for i := range r.IntN(len(builders) + 1) {
			b := &builders[i]
			project, received, historical, notify := fmt.Sprintf("p%d", r.IntN(3)), r.Int64N(1e13), r.IntN(2) == 0, r.IntN(2) == 0
			b.Reset(project, received, historical, notify)
			info := ChunkInfo{First: len(want), Count: r.IntN(60), Notify: notify, Bot: r.IntN(3) == 0, Project: project, Received: received}
			if info.Bot {
				b.MarkBot()
			}
			for c := range r.IntN(5) {
				code, n := fmt.Sprintf("code_%d", c), 1+r.IntN(1000)
				b.Reject(code, n)
				info.Rejected = appendCode(info.Rejected, code, uint64(n))
			}
			for range info.Count {
				e := randomEvent(r, received)
				b.Add(&e)
				e.Project, e.Received, e.Historical, e.Bot = project, received, historical, info.Bot
				want = append(want, e)
			}
			if b.Len() != info.Count {
				t.Fatalf("round %d: Len = %d, want %d", round, b.Len(), info.Count)
			}
			if n := len(b.Bytes()) - len(info.Rejected); n > b.Size()+2 || n < b.Size()-42 {
				t.Fatalf("round %d: Size = %d, Bytes has %d", round, b.Size(), n)
			}
			infos = append(infos, info)
			chunks = append(chunks, b.Bytes())
		}
		buf = AppendRecord(append(buf[:0], "before"...), h, chunks...)[6:]
		data := slices.Clone(buf)
		if err := rec.Decode(data); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for i := range data {
			data[i] = 0xaa // the record must not alias it
		}
		if rec.Header != h || !slices.EqualFunc(rec.Chunks, infos, equalInfo) {
			t.Fatalf("round %d: got %+v %+v, want %+v %+v", round, rec.Header, rec.Chunks, h, infos)
		}
		if len(rec.Events) != len(want) {
			t.Fatalf("round %d: %d events, want %d", round, len(rec.Events), len(want))
		}
		for i := range want {
			if got := rec.Events[i]; !equal(&got, &want[i]) {
				t.Fatalf("round %d event %d:\n got %+v\nwant %+v", round, i, got, want[i])
			}
		}
		gotH, sum, err := ReadHeader(buf)
		if err != nil || gotH != h || sum != rec.Sum {
			t.Fatalf("round %d: ReadHeader = %+v %08x %v, want %+v %08x", round, gotH, sum, err, h, rec.Sum)
		}
	}
}

func equal(a, b *Event) bool {
	return a.Project == b.Project && a.Name == b.Name && a.User == b.User && a.ID == b.ID && a.Value == b.Value &&
		a.Time == b.Time && a.Received == b.Received && a.Historical == b.Historical && a.Bot == b.Bot && bytes.Equal(a.Props, b.Props)
}

func equalInfo(a, b ChunkInfo) bool {
	return a.First == b.First && a.Count == b.Count && a.Notify == b.Notify && a.Bot == b.Bot && a.Project == b.Project &&
		a.Received == b.Received && bytes.Equal(a.Rejected, b.Rejected)
}

// TestDecodedStringsOutliveTheRecord: a Record that is decoded into again leaves the strings of before alone, and equal names
// in one record are one string.
func TestDecodedStringsOutliveTheRecord(t *testing.T) {
	var rec Record
	if err := rec.Decode(goldenRecord()); err != nil {
		t.Fatal(err)
	}
	kept := slices.Clone(rec.Events)
	var b Builder
	b.Reset("other", 5, false, false)
	for range 10 {
		b.Add(&Event{Name: "zzzzzzzzz", User: "yyyyyyyyyyyyyyyyyyyyyyyy", ID: randomUUID(rand.New(rand.NewPCG(1, 1)))})
	}
	if err := rec.Decode(AppendRecord(nil, Header{}, b.Bytes())); err != nil {
		t.Fatal(err)
	}
	for i, want := range goldenEvents() {
		if !equal(&kept[i], &want) {
			t.Errorf("event %d changed:\n got %+v\nwant %+v", i, kept[i], want)
		}
	}
	if a, b := kept[0].Name, kept[2].Name; a != b || unsafe.StringData(a) != unsafe.StringData(b) {
		t.Errorf("the names %q and %q of two chunks are two strings", a, b)
	}
}

func TestProps(t *testing.T) {
	var p Props
	p.Append("page", String, "/book/7")
	p.Append("n", Number, "1.50")
	p.Append("yes", True, "")
	p.Append("no", False, "")
	p.Append("", String, "")
	want := []Prop{{"page", String, "/book/7"}, {"n", Number, "1.50"}, {"yes", True, ""}, {"no", False, ""}, {"", String, ""}}
	if got := slices.Collect(p.All()); !slices.Equal(got, want) || p.Len() != 5 {
		t.Errorf("All = %v (Len %d), want %v", got, p.Len(), want)
	}
	for _, w := range want {
		if got, ok := p.Get(w.Key); !ok || got != w {
			t.Errorf("Get(%q) = %v %v, want %v", w.Key, got, ok, w)
		}
	}
	if got, ok := p.Get("pag"); ok {
		t.Errorf("Get(pag) = %v, want none", got)
	}
	for n := range p { // cut anywhere: no panic, and never more than there was
		if got := p[:n].Len(); got > 5 {
			t.Errorf("cut at %d: Len = %d", n, got)
		}
	}
}

// goldenEvents must never change: they are what testdata/record-v1.bin holds.
func goldenEvents() []Event {
	var p Props
	p.Append("page", String, "/book/7")
	p.Append("n", Number, "1.50")
	p.Append("ok", True, "")
	p.Append("no", False, "")
	return []Event{
		{Project: "demo", Name: "page_view", User: "u42", ID: "0190b6a1-7c3e-7b1a-9d55-3f2a1c0b9e8d", Value: "12.5", Time: 1796081400000, Received: 1796081400123, Props: p},
		{Project: "demo", Name: "阅读", ID: "order-7", Time: 1796081400123, Received: 1796081400123},
		{Project: "shop", Name: "page_view", User: "u42", Time: 86400000, Received: 1796081400200, Historical: true},
	}
}

func goldenChunks() [][]byte {
	events := goldenEvents()
	var a, b Builder
	a.Reset("demo", 1796081400123, false, true)
	a.Add(&events[0])
	a.Add(&events[1])
	b.Reset("shop", 1796081400200, true, false)
	b.Add(&events[2])
	return [][]byte{a.Bytes(), b.Bytes()}
}

var goldenHeader = Header{Producer: 0x1122334455667788, Number: 7, Received: 1796081400300}

func goldenRecord() []byte { return AppendRecord(nil, goldenHeader, goldenChunks()...) }

// TestGolden pins version 1: the bytes of chunks as they are written, and of two records (one compressed, one not) as they must
// be read for ever. What the compressor makes of a chunk may change; what it once made must stay readable.
func TestGolden(t *testing.T) {
	want := []string{
		"0464656d6f02f6e4d9ecc5680201" +
			"3f0009706167655f76696577037534320190b6a17c3e7b1a9d553f2a1c0b9e8d0431322e351e047061676573072f626f6f6b2f37016e6e04312e3530026f6b74026e6f66f501" +
			"020006e99885e8afbb076f726465722d37",
		"0473686f700190e6d9ecc5680100" + "210009706167655f7669657703753432" + "8ff6a69ac568",
	}
	for i, c := range goldenChunks() {
		if got := hex.EncodeToString(c); got != want[i] {
			t.Errorf("chunk %d:\n got %s\nwant %s", i, got, want[i])
		}
	}
	for _, file := range []string{"testdata/record-v1.bin", "testdata/record-v1-s2.bin"} {
		if os.Getenv("ROLLCALL_GOLDEN") != "" {
			chunks := goldenChunks()
			if strings.Contains(file, "s2") {
				chunks = append(chunks, chunks...)
			}
			if err := os.WriteFile(file, AppendRecord(nil, goldenHeader, chunks...), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var rec Record
		if err := rec.Decode(data); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		events := goldenEvents()
		demo := ChunkInfo{First: 0, Count: 2, Notify: true, Project: "demo", Received: 1796081400123}
		shop := ChunkInfo{First: 2, Count: 1, Project: "shop", Received: 1796081400200}
		chunks := []ChunkInfo{demo, shop}
		if strings.Contains(file, "s2") {
			events = append(events, events...)
			demo.First, shop.First = 3, 5
			chunks = append(chunks, demo, shop)
		}
		if rec.Header != goldenHeader || !slices.EqualFunc(rec.Chunks, chunks, equalInfo) {
			t.Errorf("%s: got %+v %+v", file, rec.Header, rec.Chunks)
		}
		if !slices.EqualFunc(rec.Events, events, func(a, b Event) bool { return equal(&a, &b) }) {
			t.Errorf("%s:\n got %+v\nwant %+v", file, rec.Events, events)
		}
	}
}

// TestEveryBitFlipIsSeen: no single flipped bit, and no cut, passes as a record.
func TestEveryBitFlipIsSeen(t *testing.T) {
	chunks := goldenChunks()
	for name, data := range map[string][]byte{
		"plain":      goldenRecord(),
		"compressed": AppendRecord(nil, goldenHeader, append(chunks, append(chunks, chunks...)...)...),
	} {
		if packed := data[sealedAt] == flagS2; packed != (name == "compressed") {
			t.Fatalf("%s: flags %02x", name, data[sealedAt])
		}
		var rec Record
		for i := range data {
			for bit := range 8 {
				bad := slices.Clone(data)
				bad[i] ^= 1 << bit
				err := rec.Decode(bad)
				if !errors.Is(err, ErrDamaged) && !(i == len(magic) && errors.Is(err, ErrVersion)) {
					t.Errorf("%s: byte %d bit %d flipped: %v", name, i, bit, err)
				}
				if _, _, err := ReadHeader(bad); err == nil {
					t.Errorf("%s: byte %d bit %d flipped: ReadHeader is content", name, i, bit)
				}
				if len(rec.Events) != 0 || len(rec.Chunks) != 0 || rec.Sum != 0 {
					t.Fatalf("%s: a refused record left something behind: %+v", name, rec)
				}
			}
			if err := rec.Decode(data[:i]); !errors.Is(err, ErrDamaged) {
				t.Errorf("%s: cut at %d: %v", name, i, err)
			}
		}
	}
}

// TestCraftedSizes: records whose checksum is right but whose sizes lie are refused before memory is taken for them.
func TestCraftedSizes(t *testing.T) {
	f := func(name string, flags byte, body []byte) {
		t.Helper()
		data := seal(flags, body)
		var rec Record
		if err := rec.Decode(data); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v, want ErrDamaged", name, err)
		}
		if cap(rec.Events) > 0 {
			t.Errorf("%s: made room for %d events", name, cap(rec.Events))
		}
	}
	f("body of 4 GiB", flagS2, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0})
	f("body of 17 MiB", flagS2, append([]byte{0x80, 0x80, 0xc0, 0x08}, 0))
	f("chunk longer than the body", 0, []byte{0xff, 0x01, 0})
	f("length of 2^64-1", 0, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f("length that never ends", 0, bytes.Repeat([]byte{0xff}, 20))
	f("a billion events", 0, []byte{10, 1, 'a', 0, 0, 0x80, 0x94, 0xeb, 0xdc, 0x03, 0})
	f("more packed ids than events", 0, []byte{9, 1, 'a', 0, 0, 1, 2, 0, 1, 0})
	zeros := make([]byte, MaxBody-20)
	many := append([]byte{0xfb, 0xff, 0xff, 0x07}, append([]byte{1, 'a', 0, 0, 0x80, 0x80, 0x80, 0x03, 0}, zeros...)...)
	f("events beyond MaxMemory", 0, many[:4+0xfffffb])
	if v := seal(0x80, nil); !errors.Is((&Record{}).Decode(v), ErrVersion) {
		t.Error("an unknown flag must be an unknown version")
	}
}

// seal makes a record with the right checksum around any body.
func seal(flags byte, body []byte) []byte {
	data := AppendRecord(nil, Header{})
	data = append(data[:headerSize], body...)
	data[sealedAt] = flags
	putSum(data)
	return data
}

// TestFullestRecord: what a journal may group at most (1 MiB of the smallest events) and the fullest single chunk are readable.
func TestFullestRecord(t *testing.T) {
	var b Builder
	b.Reset("a", 1, false, false)
	for range 5000 {
		b.Add(&Event{Name: "a", Time: 1})
	}
	var chunks [][]byte
	for size := 0; size+len(b.Bytes()) <= 1<<20; size += len(b.Bytes()) {
		chunks = append(chunks, b.Bytes())
	}
	var rec Record
	if err := rec.Decode(AppendRecord(nil, Header{}, chunks...)); err != nil {
		t.Fatal(err)
	}
	if want := 5000 * len(chunks); len(rec.Events) != want || want < 500_000 {
		t.Errorf("%d events, want %d", len(rec.Events), want)
	}

	b.Reset("a", 1, false, false)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range MaxChunkEvents {
		b.Add(&Event{Name: "a", Time: int64(i), ID: randomUUID(r), User: strings.Repeat("u", 55)})
	}
	if n := len(b.Bytes()); n < MaxBody*9/10 || n > MaxBody {
		t.Fatalf("the chunk has %d bytes, this test wants nearly %d", n, MaxBody)
	}
	if err := rec.Decode(AppendRecord(nil, Header{}, b.Bytes())); err != nil || len(rec.Events) != MaxChunkEvents {
		t.Errorf("%d events, %v", len(rec.Events), err)
	}
}

func TestExtremeTimes(t *testing.T) {
	times := []int64{0, -1, math.MinInt64, math.MaxInt64, 31536000000}
	var b Builder
	var rec Record
	for _, received := range times {
		b.Reset("p", received, false, false)
		for _, at := range times {
			b.Add(&Event{Name: "e", Time: at})
		}
		if err := rec.Decode(AppendRecord(nil, Header{}, b.Bytes())); err != nil {
			t.Fatal(err)
		}
		for i, at := range times {
			if e := rec.Events[i]; e.Time != at || e.Received != received {
				t.Errorf("time %d received %d came back as %d %d", at, received, e.Time, e.Received)
			}
		}
	}
}

// TestNoAllocationPerEvent: building costs none, decoding a few for the whole record.
func TestNoAllocationPerEvent(t *testing.T) {
	events := benchEvents(1000)
	var b Builder
	build := func() {
		b.Reset("demo", 1, false, false)
		for i := range events {
			b.Add(&events[i])
		}
	}
	build()
	if n := testing.AllocsPerRun(10, build); n != 0 {
		t.Errorf("building 1,000 events allocates %v times", n)
	}
	data := AppendRecord(nil, Header{}, b.Bytes())
	var rec Record
	if n := testing.AllocsPerRun(10, func() {
		if err := rec.Decode(data); err != nil {
			t.Error(err)
		}
	}); n > 3 {
		t.Errorf("decoding 1,000 events allocates %v times, want 2", n)
	}
}

func FuzzRecordDecode(f *testing.F) {
	f.Add(goldenRecord()[headerSize:], byte(0))
	chunks := goldenChunks()
	f.Add(AppendRecord(nil, goldenHeader, append(chunks, chunks...)...)[headerSize:], byte(flagS2))
	f.Add([]byte{}, byte(0))
	f.Add(AppendRecord(nil, goldenHeader, goldenRejected()...)[headerSize:], byte(0))
	f.Fuzz(func(t *testing.T, body []byte, flags byte) {
		var rec Record
		if err := rec.Decode(body); err == nil && len(body) < headerSize {
			t.Error("decoded from next to nothing")
		}
		err := rec.Decode(seal(flags&flagS2, body))
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("unnamed error %v", err)
			}
			return
		}
		count := 0
		for i, c := range rec.Chunks {
			if c.First != count || c.Count < 0 {
				t.Errorf("chunk %d begins at %d, want %d", i, c.First, count)
			}
			if n := c.Rejected.Total(); n < 0 || n > MaxCodes*MaxRejected {
				t.Errorf("chunk %d has %d rejections", i, n)
			}
			count += c.Count
		}
		if count != len(rec.Events) {
			t.Errorf("chunks have %d events, the record %d", count, len(rec.Events))
		}
		// What was read can be written and reads the same.
		var again Record
		var out [][]byte
		for _, c := range rec.Chunks {
			var b Builder
			b.Reset(c.Project, c.Received, c.Count > 0 && rec.Events[c.First].Historical, c.Notify)
			if c.Bot {
				b.MarkBot()
			}
			for code, n := range c.Rejected.All() {
				b.Reject(code, int(n))
			}
			for i := range rec.Events[c.First : c.First+c.Count] {
				e := &rec.Events[c.First+i]
				b.Add(e)
				e.Props.Len()
			}
			out = append(out, b.Bytes())
		}
		if err := again.Decode(AppendRecord(nil, rec.Header, out...)); err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(rec.Events, again.Events, func(a, b Event) bool { return equal(&a, &b) }) {
			t.Errorf("not the same when written again:\n%+v\n%+v", rec.Events, again.Events)
		}
		for i, c := range again.Chunks {
			if was := rec.Chunks[i]; c.Project != was.Project || c.Received != was.Received || c.Bot != was.Bot || c.Rejected.Total() > was.Rejected.Total() {
				t.Errorf("chunk %d is %+v, was %+v", i, c, was)
			}
		}
	})
}

// benchEvents are page views with a UUID, a user, a time and two props.
func benchEvents(n int) []Event {
	r := rand.New(rand.NewPCG(5, 6))
	events := make([]Event, n)
	for i := range events {
		e := &events[i]
		*e = Event{Name: "page_view", User: fmt.Sprintf("u%07d", r.IntN(5_000_000)), ID: randomUUID(r), Time: 1796081400000 + int64(i*37)}
		e.Props.Append("page", String, fmt.Sprintf("/book/%d", r.IntN(20000)))
		e.Props.Append("channel", String, []string{"ios", "android", "web"}[r.IntN(3)])
	}
	return events
}

func BenchmarkRecord(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		events := benchEvents(n)
		var bld Builder
		build := func() {
			bld.Reset("demo", 1796081500000, false, false)
			for i := range events {
				bld.Add(&events[i])
			}
		}
		build()
		rec := AppendRecord(nil, Header{Producer: 1 << 60, Number: 1}, bld.Bytes())
		perEvent := func(b *testing.B) {
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/event")
		}
		b.Run(fmt.Sprintf("build/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				build()
			}
			perEvent(b)
		})
		b.Run(fmt.Sprintf("append/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			var buf []byte
			for range b.N {
				buf = AppendRecord(buf[:0], Header{Producer: 1 << 60, Number: 1}, bld.Bytes())
			}
			perEvent(b)
			b.ReportMetric(float64(len(bld.Bytes()))/float64(n), "rawB/event")
			b.ReportMetric(float64(len(buf))/float64(n), "B/event")
		})
		b.Run(fmt.Sprintf("decode/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			var r Record
			for range b.N {
				if err := r.Decode(rec); err != nil {
					b.Fatal(err)
				}
			}
			perEvent(b)
		})
	}
}
