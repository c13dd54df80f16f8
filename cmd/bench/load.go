package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

// loadSpec says what one load process sends.
type loadSpec struct {
	Addr     string
	Path     string // with the key
	Conns    int
	Batch    int // events a request; 1 = one JSON object
	Duration time.Duration
	Rate     int // requests per second over all connections; 0 = as fast as answers come
	Seed     int // makes the ids of this run its own
}

// loadResult is what it saw.
type loadResult struct {
	Requests int
	Events   int
	Seconds  float64
	P50, P99 float64 // ms
	Failed   int
	CPU      float64 // seconds of the load process itself
}

func (r loadResult) eventRate() float64 { return float64(r.Events) / r.Seconds }

// load runs as a process of its own, so that its work does not count as the server's.
func load(spec loadSpec) (loadResult, error) {
	var (
		mu   sync.Mutex
		all  []uint32
		res  loadResult
		errs error
		wg   sync.WaitGroup
	)
	began := time.Now()
	until := began.Add(spec.Duration)
	for i := range spec.Conns {
		wg.Go(func() {
			lat, failed, err := drive(spec, i, began, until)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, lat...)
			res.Failed += failed
			errs = errors.Join(errs, err)
		})
	}
	wg.Wait()
	res.Seconds = time.Since(began).Seconds()
	if errs != nil {
		return res, errs
	}
	if len(all) == 0 {
		return res, errors.New("no request was answered")
	}
	slices.Sort(all)
	res.Requests, res.Events = len(all), len(all)*spec.Batch
	res.P50 = float64(all[len(all)/2]) / 1000
	res.P99 = float64(all[len(all)*99/100]) / 1000
	res.CPU = selfCPU()
	return res, nil
}

// drive is one connection: send, wait for the answer, again.
func drive(spec loadSpec, conn int, began, until time.Time) (lat []uint32, failed int, err error) {
	c, err := net.Dial("tcp", spec.Addr)
	if err != nil {
		return nil, 0, err
	}
	defer c.Close()
	br := bufio.NewReaderSize(c, 16<<10)
	var body, req []byte
	pause := time.Duration(0)
	if spec.Rate > 0 {
		pause = time.Second * time.Duration(spec.Conns) / time.Duration(spec.Rate)
		time.Sleep(pause * time.Duration(conn) / time.Duration(spec.Conns))
	}
	for n := 0; ; n++ {
		if spec.Rate > 0 {
			time.Sleep(time.Until(began.Add(pause * time.Duration(n))))
		}
		if !time.Now().Before(until) {
			return lat, failed, nil
		}
		body = appendBody(body[:0], spec, conn, n)
		req = fmt.Appendf(req[:0], "POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", spec.Path, len(body))
		req = append(req, body...)
		start := time.Now()
		if _, err := c.Write(req); err != nil {
			return lat, failed, err
		}
		status, err := readResponse(br)
		if err != nil {
			return lat, failed, err
		}
		lat = append(lat, uint32(time.Since(start).Microseconds()))
		if status/100 != 2 {
			failed++
		}
	}
}

// appendBody writes the events of one request: 20 pages, 50,000 users, fresh ids.
func appendBody(dst []byte, spec loadSpec, conn, n int) []byte {
	ts := time.Now().UnixMilli()
	for i := range spec.Batch {
		x := uint32(conn*7919+n*104729+i*31) * 2654435761
		dst = append(dst, `{"id":"`...)
		dst = appendHex(dst, uint64(spec.Seed), 8)
		dst = append(dst, '-')
		dst = appendHex(dst, uint64(conn), 4)
		dst = append(dst, "-4000-8000-"...)
		dst = appendHex(dst, uint64(n*spec.Batch+i), 12)
		dst = append(dst, `","event":"page_view","user":"user-`...)
		dst = strconv.AppendUint(dst, uint64(x>>8)%50_000, 10)
		dst = append(dst, `","ts":`...)
		dst = strconv.AppendInt(dst, ts, 10)
		dst = append(dst, `,"props":{"page":"/book/`...)
		dst = strconv.AppendUint(dst, uint64(x>>24)%20, 10)
		dst = append(dst, `","channel":"ios"}}`...)
		if spec.Batch > 1 {
			dst = append(dst, '\n')
		}
	}
	return dst
}

func appendHex(dst []byte, v uint64, digits int) []byte {
	const hex = "0123456789abcdef"
	for i := digits - 1; i >= 0; i-- {
		dst = append(dst, hex[v>>(4*i)&15])
	}
	return dst
}

var contentLength = []byte("content-length:")

// readResponse reads one HTTP/1.1 response with a Content-Length and returns its status.
func readResponse(br *bufio.Reader) (status int, err error) {
	line, err := br.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < 12 {
		return 0, fmt.Errorf("bad status line %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, err
	}
	length := 0
	for {
		line, err := br.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if len(line) <= 2 {
			break
		}
		if len(line) > len(contentLength) && bytes.EqualFold(line[:len(contentLength)], contentLength) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(contentLength):]))); err != nil {
				return 0, err
			}
		}
	}
	_, err = io.CopyN(io.Discard, br, int64(length))
	return status, err
}

// loadMain is the load process: a spec on standard input, a result on standard output.
func loadMain() error {
	var spec loadSpec
	if err := json.NewDecoder(os.Stdin).Decode(&spec); err != nil {
		return err
	}
	res, err := load(spec)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(res)
}
