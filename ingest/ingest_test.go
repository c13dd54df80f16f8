package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/clock"
	"github.com/rollcall/rollcall/internal/event"
	"github.com/rollcall/rollcall/internal/journal"
)

// rig is an Ingest over a real journal.
type rig struct {
	*Ingest
	journal *journal.Journal
}

func newRig(t *testing.T) *rig {
	t.Helper()
	j, err := journal.Open(t.Context(), journal.Options{Dir: t.TempDir(), MinFree: -1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return &rig{New(Options{Journal: j, Clock: clock.NewManual(time.UnixMilli(noon))}), j}
}

func (r *rig) post(t *testing.T, body []byte, encoding string) (*Result, error) {
	t.Helper()
	return r.Accept(t.Context(), Request{Project: "demo", Body: bytes.NewReader(body), ContentEncoding: encoding})
}

// records reads all that is in the journal.
func (r *rig) records(t *testing.T) (out []event.Event) {
	t.Helper()
	first, last, err := r.journal.Bounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for seq := first; seq <= last; seq++ {
		e, err := r.journal.Get(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		var rec event.Record
		if err := rec.Decode(e.Data); err != nil {
			t.Fatal(err)
		}
		out = append(out, rec.Events...)
	}
	return out
}

// refused checks that a body is refused as a whole and nothing of it is in the journal.
func (r *rig) refused(t *testing.T, name string, body []byte, encoding string, kind apperr.Kind, code string) {
	t.Helper()
	res, err := r.post(t, body, encoding)
	var e *apperr.Error
	if !errors.As(err, &e) || e.Kind != kind || e.Code != code {
		t.Errorf("%s: %+v, %v; want %s", name, res, err, code)
	}
	if got := r.records(t); len(got) != 0 {
		t.Fatalf("%s: %d events are in the journal", name, len(got))
	}
}

func gzipped(t testing.TB, s string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zstded(t testing.TB, s string) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll([]byte(s), nil)
}

// streamed is zstd without the content's size in its header.
func streamed(t testing.TB, s string) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitAfterSeq(s, "\n") {
		if _, err := io.WriteString(w, part); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const page = `{"event":"page_view","user":"u"}`

func TestAcceptStores(t *testing.T) {
	r := newRig(t)
	res, err := r.post(t, []byte("["+page+`,{"event":"x","ts":5},`+page+"]"), "")
	if err != nil || res.Received != 3 || res.Accepted != 2 || len(res.Rejected) != 1 || res.AllRejected() || res.Waited || res.Applied {
		t.Fatalf("%+v %v", res, err)
	}
	got := r.records(t)
	if len(got) != 2 || got[0].Project != "demo" || got[0].Received != noon || got[0].Time != noon || got[0].Historical {
		t.Errorf("%+v", got)
	}
	res, err = r.Accept(t.Context(), Request{Project: "shop", LateWindow: time.Hour, Body: strings.NewReader(`[{"event":"e","ts":"2026-11-30T10:00:00Z"}]`)})
	if err != nil || !res.AllRejected() || res.Rejected[0].Code != CodeTooLate || !strings.Contains(res.Rejected[0].Detail, "1 hours") {
		t.Errorf("late window of an hour: %+v %v", res, err)
	}
	res, err = r.Accept(t.Context(), Request{Project: "shop", Body: strings.NewReader(`[{"event":"e","ts":"2015-11-30T10:00:00Z"}]`), Historical: true})
	if err != nil || res.Accepted != 1 {
		t.Errorf("historical: %+v %v", res, err)
	}
	got = r.records(t)
	if e := got[len(got)-1]; len(got) != 3 || !e.Historical || e.Project != "shop" {
		t.Errorf("%+v", got)
	}
}

// TestNothingGoodStoresNothing: no record is written for a request of which nothing is taken.
func TestNothingGoodStoresNothing(t *testing.T) {
	r := newRig(t)
	for _, body := range []string{"[]", `{"events":[]}`, "[1,2]", `{"user":"u"}`} {
		for _, wait := range []time.Duration{0, time.Hour} {
			res, err := r.Accept(t.Context(), Request{Project: "demo", Body: strings.NewReader(body), Wait: wait})
			if err != nil || res.Accepted != 0 || res.AllRejected() != (res.Received > 0) || res.Applied != (wait > 0) {
				t.Errorf("%s: %+v %v", body, res, err)
			}
		}
	}
	r.refused(t, "empty", nil, "", apperr.Malformed, CodeEmptyBody)
	r.refused(t, "empty gzip", gzipped(t, ""), "gzip", apperr.Malformed, CodeEmptyBody)
	r.refused(t, "nothing, labelled gzip", nil, "gzip", apperr.Malformed, CodeEmptyBody)
	r.refused(t, "broken", []byte("["+page), "", apperr.Malformed, CodeBody)
	r.refused(t, "too many", []byte(strings.Repeat(page+"\n", 5001)), "", apperr.TooLarge, CodeTooMany)
	r.refused(t, "too large", []byte("["+page+strings.Repeat(" ", 8<<20)), "", apperr.TooLarge, CodeBodyTooLarge)
	if res, err := r.Accept(t.Context(), Request{Project: "demo", Body: iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(page)))}); err == nil ||
		apperr.As(err).Code != CodeUnreadable || !errors.Is(err, iotest.ErrTimeout) {
		t.Errorf("connection broken off: %+v %v", res, err)
	}
}

// TestLimitsAreExact: exactly the limit is taken, whatever the encoding; one byte more is not.
func TestLimitsAreExact(t *testing.T) {
	r := newRig(t)
	full := page + "\n" + strings.Repeat(" ", 8<<20-len(page)-1)
	for name, c := range map[string]struct {
		pack     func(testing.TB, string) []byte
		encoding string
	}{
		"identity": {func(_ testing.TB, s string) []byte { return []byte(s) }, "identity"},
		"gzip":     {gzipped, "gzip"}, "zstd": {zstded, "zstd"}, "zstd stream": {streamed, "ZSTD"},
	} {
		before := len(r.records(t))
		if res, err := r.post(t, c.pack(t, full), c.encoding); err != nil || res.Accepted != 1 {
			t.Errorf("%s: 8 MiB: %+v %v", name, res, err)
		}
		if _, err := r.post(t, c.pack(t, full+" "), c.encoding); err == nil || apperr.As(err).Code != CodeBodyTooLarge {
			t.Errorf("%s: 8 MiB and a byte: %v", name, err)
		}
		if got := len(r.records(t)); got != before+1 {
			t.Errorf("%s: %d events stored, want 1", name, got-before)
		}
	}
}

// TestAllSizesDecode: bodies around the sizes of the buffers come out whole.
func TestAllSizesDecode(t *testing.T) {
	bs := newBodies(4 << 20)
	rnd := rand.New(rand.NewPCG(11, 12))
	block := make([]byte, 20_000)
	for i := range block {
		block[i] = byte(rnd.Uint32())
	}
	data := bytes.Repeat(block, 4<<20/len(block)+1)
	for _, n := range []int{1, 100, 32<<10 - 1, 32 << 10, 32<<10 + 1, 1<<20 - 1, 1 << 20, 1<<20 + 1, 3 << 20, 4 << 20} {
		want := data[:n]
		for encoding, packed := range map[string][]byte{"gzip": gzipped(t, string(want)), "x-gzip": gzipped(t, string(want)), "zstd": zstded(t, string(want)), "": want} {
			got, release, err := bs.read(t.Context(), bytes.NewReader(packed), encoding)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s, %d bytes: got %d, %v", encoding, n, len(got), err)
			}
			release()
		}
	}
}

// TestHT01_ContentTypeDoesNotMatter: Accept is not even told the content type; the bytes decide.
func TestHT01_ContentTypeDoesNotMatter(t *testing.T) {
	r := newRig(t)
	for range 3 {
		if res, err := r.post(t, []byte(page), ""); err != nil || res.Accepted != 1 {
			t.Fatalf("%+v %v", res, err)
		}
	}
	if got := r.records(t); len(got) != 3 {
		t.Errorf("PV %d, want 3", len(got))
	}
}

// A window beyond what RFC 8878 asks for is refused by its name, not as a body that is too long.
func TestALargeZstdWindowIsNamed(t *testing.T) {
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, zstd.WithWindowSize(16<<20), zstd.WithSingleSegment(false))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(page)); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil { // the size is not known yet, so the header names the window
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	_, err = r.post(t, b.Bytes(), "zstd")
	if e := apperr.As(err); e.Kind != apperr.TooLarge || !strings.Contains(e.Detail, "window") {
		t.Errorf("%v; want TooLarge that names the window", err)
	}
}

func TestHT08_Bombs(t *testing.T) {
	r := newRig(t)
	zeros := strings.Repeat("0", 64<<20)
	bomb, zbomb, sbomb := gzipped(t, zeros), zstded(t, zeros), streamed(t, strings.Repeat(strings.Repeat("0", 1<<20)+"\n", 64))
	members := bytes.Repeat(gzipped(t, ""), 8<<20/16) // compressed size over the limit, no content
	zeros = ""
	for name, c := range map[string]struct {
		body     []byte
		encoding string
	}{"gzip": {bomb, "gzip"}, "zstd": {zbomb, "zstd"}, "zstd without its size": {sbomb, "zstd"}, "empty members": {members, "gzip"}} {
		r.refused(t, name, c.body, c.encoding, apperr.TooLarge, CodeBodyTooLarge)

		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if _, err := r.post(t, c.body, c.encoding); err == nil || apperr.As(err).Kind != apperr.TooLarge {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		wg.Wait()
		runtime.ReadMemStats(&after)
		// All that was ever allocated, so the growth was less. The endless members are no bomb: their sender pays for each byte.
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 10*8<<20 && len(c.body) < 1<<20 {
			t.Errorf("%s: 10 at once allocated %d MiB, want less than 80", name, grown>>20)
		}
	}
	r.refused(t, "gzip in gzip", gzipped(t, string(gzipped(t, page))), "gzip, gzip", apperr.Unsupported, CodeEncoding)
	r.refused(t, "gzip in gzip, labelled once", gzipped(t, string(gzipped(t, page))), "gzip", apperr.Malformed, CodeBody)
	for _, e := range []string{"br", "deflate", "compress", "gzip,identity", "*", "gzip;q=1"} {
		r.refused(t, e, gzipped(t, page), e, apperr.Unsupported, CodeEncoding)
	}
	if res, err := r.post(t, gzipped(t, page), " GZip "); err != nil || res.Accepted != 1 {
		t.Errorf("after the bombs: %+v %v", res, err)
	}
}

func TestHT09_GzipMembers(t *testing.T) {
	r := newRig(t)
	two := append(gzipped(t, page+"\n"), gzipped(t, page+"\n")...)
	r.refused(t, "cut by 6 bytes", two[:len(two)-6], "gzip", apperr.Malformed, CodeBadEncoding)
	r.refused(t, "plain JSON labelled gzip", []byte(page), "gzip", apperr.Malformed, CodeBadEncoding)
	r.refused(t, "gzip without the label", two, "", apperr.Malformed, CodeBody)
	r.refused(t, "zstd without the label", zstded(t, page), "", apperr.Malformed, CodeBody)
	r.refused(t, "garbage behind it", append(bytes.Clone(two), "garbage"...), "gzip", apperr.Malformed, CodeBadEncoding)
	r.refused(t, "one byte behind it", append(bytes.Clone(two), 0), "gzip", apperr.Malformed, CodeBadEncoding)
	broken := bytes.Clone(two)
	broken[len(broken)-8] ^= 1 // the checksum
	r.refused(t, "wrong checksum", broken, "gzip", apperr.Malformed, CodeBadEncoding)
	for n := range two {
		if n == 0 || n == len(two)/2 {
			continue // nothing, and a whole first member
		}
		r.refused(t, fmt.Sprintf("cut at %d", n), two[:n], "gzip", apperr.Malformed, CodeBadEncoding)
	}
	z := zstded(t, page)
	for n := 1; n < len(z); n++ {
		r.refused(t, fmt.Sprintf("zstd cut at %d", n), z[:n], "zstd", apperr.Malformed, CodeBadEncoding)
	}
	r.refused(t, "zstd, then garbage", append(bytes.Clone(z), "garbage"...), "zstd", apperr.Malformed, CodeBadEncoding)
	r.refused(t, "plain JSON labelled zstd", []byte(page), "zstd", apperr.Malformed, CodeBadEncoding)

	res, err := r.post(t, two, "gzip")
	if err != nil || res.Accepted != 2 || len(r.records(t)) != 2 {
		t.Errorf("two members: %+v %v", res, err)
	}
}

// TestWait: with Wait the answer comes from what the projector tells about this request's own chunk.
func TestWait(t *testing.T) {
	r := newRig(t)
	reader, err := r.journal.Read(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var wg sync.WaitGroup
	wg.Go(func() { // the projector's part
		entry, err := reader.Next(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		var rec event.Record
		if err := rec.Decode(entry.Data); err != nil || len(rec.Chunks) != 1 || !rec.Chunks[0].Notify {
			t.Errorf("%+v %v", rec.Chunks, err)
		}
		if err := r.journal.Announce(rec.Header, map[int]journal.Notice{0: {Duplicates: []int{1}}}); err != nil {
			t.Error(err)
		}
	})
	ask := Request{Project: "demo", Body: strings.NewReader("[" + page + "," + page + ",7]"), Wait: time.Minute}
	res, err := r.Accept(t.Context(), ask)
	wg.Wait()
	if err != nil || !res.Applied || res.Received != 3 || res.Accepted != 1 || res.Duplicates != 1 || len(res.Rejected) != 1 {
		t.Errorf("%+v %v", res, err)
	}
	const want = `{"received":3,"accepted":1,"duplicates":1,"applied":true,"rejected":[{"index":2,"code":"not_an_object","detail":"An event is a JSON object."}]}`
	if got := string(res.AppendJSON(nil)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	// Nobody applies the next one: it is safe, and the answer says that it is not applied yet.
	ask.Body, ask.Wait = strings.NewReader(page), time.Millisecond
	res, err = r.Accept(t.Context(), ask)
	if err != nil || res.Applied || !res.Waited || res.Accepted != 1 || len(r.records(t)) != 3 {
		t.Errorf("not applied in time: %+v %v", res, err)
	}
}

// refusing is a journal that takes nothing.
type refusing struct{ err error }

func (f refusing) Append(context.Context, journal.Chunk) (*journal.Receipt, error) { return nil, f.err }

func TestJournalRefuses(t *testing.T) {
	full := apperr.New(apperr.Unavailable, "journal_full", "full").After(time.Second)
	in := New(Options{Journal: refusing{full}, Clock: clock.System{}})
	res, err := in.Accept(t.Context(), Request{Project: "demo", Body: strings.NewReader(page)})
	if res != nil || !errors.Is(err, full) {
		t.Errorf("%+v %v, want the journal's own refusal", res, err)
	}
}

// TestManyAtOnce: requests side by side share buffers, never content.
func TestManyAtOnce(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 30 {
				body := strings.Repeat(fmt.Sprintf(`{"event":"e","user":"user-%d-%d"}`+"\n", g, i), 1+g*i)
				var res *Result
				var err error
				switch i % 3 {
				case 0:
					res, err = r.post(t, []byte(body), "")
				case 1:
					res, err = r.post(t, gzipped(t, body), "gzip")
				default:
					res, err = r.post(t, zstded(t, body), "zstd")
				}
				if err != nil || res.Accepted != 1+g*i {
					t.Errorf("%d %d: %+v %v", g, i, res, err)
				}
			}
		})
	}
	wg.Wait()
	got := map[string]int{}
	for _, e := range r.records(t) {
		got[e.User]++
	}
	for g := range 8 {
		for i := range 30 {
			if u := fmt.Sprintf("user-%d-%d", g, i); got[u] != 1+g*i {
				t.Errorf("%s: %d events, want %d", u, got[u], 1+g*i)
			}
		}
	}
}
