package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/rollcall/rollcall/ingest/files"
)

// importer posts a file's events in batches, several in flight, and writes down in the file's order what was refused.
type importer struct {
	client   *client
	next     func() (files.Row, error) // io.EOF at the end
	reject   func(files.Row) error
	note     func(format string, args ...any) // tells a person what it waits for
	batch    int                              // most events in a request
	inFlight int
	patience time.Duration // how long a batch is tried while the server is away

	read atomic.Int64 // events and bad lines so far
	sum  summary
}

// summary is what became of the lines.
type summary struct {
	Taken, Duplicates, Rejected int64
	Unknown                     int64 // taken in batches whose duplicates were not known in time
}

// maxBatchBytes stays below the server's limit on a body after decompression.
const maxBatchBytes = 4 << 20

// posted is one batch on its way.
type posted struct {
	rows []files.Row // good and bad, in the file's order
	good []int       // indices of the lines that were sent
	body []byte      // gzip
	done chan struct{}
	res  answer
	err  error
}

// answer is what the server said about a batch.
type answer struct {
	Received   int   `json:"received"`
	Accepted   int   `json:"accepted"`
	Bots       int   `json:"bots"`
	Duplicates int   `json:"duplicates"`
	Applied    *bool `json:"applied"`
	Rejected   []struct {
		Index  int    `json:"index"`
		Code   string `json:"code"`
		Field  string `json:"field"`
		Detail string `json:"detail"`
	} `json:"rejected"`
}

// run imports everything. What was taken before an error stays taken: running it again with the same file finishes the work.
func (im *importer) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan *posted)
	order := make(chan *posted, im.inFlight) // batches in the file's order; its size bounds what is held
	var senders sync.WaitGroup
	for range im.inFlight {
		senders.Go(func() {
			for p := range work {
				if p.res, p.err = im.send(ctx, p); p.err != nil {
					cancel(p.err)
				}
				close(p.done)
			}
		})
	}
	read := make(chan error, 1)
	go func() {
		defer close(order)
		defer close(work)
		read <- im.readAll(ctx, work, order)
	}()
	var failed error
	for p := range order {
		<-p.done
		if failed == nil {
			if failed = p.err; failed == nil {
				failed = im.settle(p)
			}
			if failed != nil {
				cancel(failed)
			}
		}
	}
	senders.Wait()
	err := <-read
	if cause := context.Cause(ctx); cause != nil {
		return cause // the first fault; the others follow from it
	}
	return errors.Join(failed, err)
}

// readAll cuts the input into batches.
func (im *importer) readAll(ctx context.Context, work, order chan<- *posted) error {
	for {
		p, err := im.fill()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(p.rows) > 0 {
			select {
			case order <- p:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if len(p.good) == 0 {
				close(p.done)
			} else {
				work <- p // a sender is always there: they end when work is closed
			}
		}
		if err != nil {
			return nil
		}
	}
}

// fill reads one batch. The error is io.EOF with the last one.
func (im *importer) fill() (*posted, error) {
	p := &posted{done: make(chan struct{})}
	var body bytes.Buffer
	zip, err := gzip.NewWriterLevel(&body, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	size := 0
	for len(p.rows) < im.batch && size < maxBatchBytes {
		row, err := im.next()
		if err != nil {
			if err := zip.Close(); err != nil {
				return nil, err
			}
			p.body = body.Bytes()
			return p, err
		}
		im.read.Add(1)
		size += len(row.Text) + len(row.Event)
		if row.Event != nil {
			p.good = append(p.good, len(p.rows))
			_, err1 := zip.Write(row.Event)
			_, err2 := zip.Write([]byte{'\n'})
			if err := errors.Join(err1, err2); err != nil {
				return nil, err
			}
			row.Event = nil
		}
		p.rows = append(p.rows, row)
	}
	err = zip.Close()
	p.body = body.Bytes()
	return p, err
}

// settle counts a batch's answer and writes its refused lines, in the file's order.
func (im *importer) settle(p *posted) error {
	if len(p.good) > 0 && p.res.Received != len(p.good) {
		return fmt.Errorf("the server has read %d events of a batch of %d", p.res.Received, len(p.good))
	}
	for _, r := range p.res.Rejected {
		if r.Index < 0 || r.Index >= len(p.good) {
			return fmt.Errorf("the server has rejected event %d of a batch of %d", r.Index, len(p.good))
		}
		reason := r.Code
		if r.Field != "" {
			reason += " (" + r.Field + ")"
		}
		if r.Detail != "" {
			reason += ": " + r.Detail
		}
		p.rows[p.good[r.Index]].Reason = reason
	}
	for _, row := range p.rows {
		if row.Reason == "" {
			continue
		}
		im.sum.Rejected++
		if err := im.reject(row); err != nil {
			return err
		}
	}
	im.sum.Taken += int64(p.res.Accepted)
	im.sum.Duplicates += int64(p.res.Duplicates)
	if p.res.Applied != nil && !*p.res.Applied {
		im.sum.Unknown += int64(p.res.Accepted)
	}
	return nil
}

// send posts a batch until the server takes it. The events have ids, so a batch whose answer was lost counts once.
func (im *importer) send(ctx context.Context, p *posted) (answer, error) {
	wait, giveUp := 200*time.Millisecond, time.Now().Add(im.patience)
	for {
		res, err := im.post(ctx, p.body)
		if err == nil {
			return res, nil
		}
		var r *refusal
		var away *noAnswer
		switch {
		case errors.As(err, &r) && (r.Status == http.StatusServiceUnavailable || r.Status == http.StatusTooManyRequests):
			wait = max(wait, r.after)
		case errors.As(err, &away):
		default:
			return answer{}, err
		}
		if time.Now().Add(wait).After(giveUp) {
			return answer{}, err
		}
		im.note("trying again in %s: %v", wait.Round(100*time.Millisecond), err)
		select {
		case <-time.After(wait + rand.N(wait/4)):
		case <-ctx.Done():
			return answer{}, context.Cause(ctx)
		}
		wait = min(2*wait, 10*time.Second)
	}
}

func (im *importer) post(ctx context.Context, body []byte) (answer, error) {
	header := http.Header{"Content-Encoding": {"gzip"}, "Content-Type": {"application/x-ndjson"}}
	query := url.Values{"historical": {"1"}, "wait": {"30s"}}
	res, err := im.client.call(ctx, "POST", "/v1/events", query, bytes.NewReader(body), header)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	// A batch of which every event was refused comes back as 422 with the same body.
	allRefused := res.StatusCode == http.StatusUnprocessableEntity && res.Header.Get("Content-Type") == "application/json"
	if res.StatusCode != http.StatusAccepted && !allRefused {
		return answer{}, refused(res)
	}
	var a answer
	if err := json.NewDecoder(io.LimitReader(res.Body, 64<<20)).Decode(&a); err != nil {
		return answer{}, &noAnswer{im.client.base, fmt.Errorf("the answer broke off: %w", err)}
	}
	return a, nil
}
