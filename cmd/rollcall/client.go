package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rollcall/rollcall/internal/config"
)

// client talks to a running server.
type client struct {
	base, key, project string
	http               *http.Client
}

// clientFlags defines what every command that talks to a server takes.
func clientFlags(cmd *cobra.Command) {
	config.AddFlags(cmd.Flags(), "data")
	cmd.Flags().String("url", "", "the server (default ROLLCALL_URL, or what DATA/url says, or http://127.0.0.1:8080)")
	cmd.Flags().String("project", "", "the project, when there are several")
}

// newClient finds the server and the key: flag, environment, data folder.
func newClient(cmd *cobra.Command) (*client, error) {
	c, err := loadConfig(cmd)
	if err != nil {
		return nil, err
	}
	cl := &client{key: os.Getenv("ROLLCALL_KEY"), http: &http.Client{
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSHandshakeTimeout:   10 * time.Second,
			ResponseHeaderTimeout: 2 * time.Minute, // a server may hold a request for its ?wait=
			MaxIdleConnsPerHost:   16,
			DisableCompression:    true,
		},
	}}
	if cl.project, err = cmd.Flags().GetString("project"); err != nil {
		return nil, err
	}
	if cl.base, err = cmd.Flags().GetString("url"); err != nil {
		return nil, err
	}
	if cl.base == "" {
		cl.base = os.Getenv("ROLLCALL_URL")
	}
	if cl.base == "" {
		data, err := os.ReadFile(filepath.Join(c.Data, urlName))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		cl.base = strings.TrimSpace(string(data))
	}
	if cl.base == "" {
		cl.base = "http://127.0.0.1:8080"
	}
	if u, err := url.Parse(cl.base); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("the server's URL %q: want http://HOST:PORT", cl.base)
	}
	cl.base = strings.TrimRight(cl.base, "/")
	if cl.key == "" {
		data, err := os.ReadFile(filepath.Join(c.Data, adminName))
		if err != nil {
			return nil, fmt.Errorf("no key: %w\nName the server's data folder with --data, or set ROLLCALL_KEY (and ROLLCALL_URL)", err)
		}
		cl.key = strings.TrimSpace(string(data))
	}
	return cl, nil
}

// call sends one request. The answer's status may be anything; its body is the caller's to close.
func (c *client) call(ctx context.Context, method, path string, query url.Values, body io.Reader, header http.Header) (*http.Response, error) {
	if c.project != "" {
		query.Set("project", c.project)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+path+"?"+query.Encode(), body)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		r.Header[k] = v
	}
	r.Header.Set("Authorization", "Bearer "+c.key)
	r.Header.Set("User-Agent", "rollcall/"+buildVersion())
	res, err := c.http.Do(r)
	if err != nil && ctx.Err() == nil {
		return nil, &noAnswer{c.base, err}
	}
	return res, err
}

// noAnswer is a server that can't be reached, or went away.
type noAnswer struct {
	base  string
	cause error
}

func (e *noAnswer) Error() string {
	cause := e.cause
	var u *url.Error
	if errors.As(cause, &u) {
		cause = u.Err
	}
	return fmt.Sprintf("no rollcall answers at %s: %v\nStart one with \"rollcall serve\", or say where it is with --data, --url or ROLLCALL_URL", e.base, cause)
}

func (e *noAnswer) Unwrap() error { return e.cause }

// refusal is a problem document that the server sent.
type refusal struct {
	Status    int    `json:"status"`
	Code      string `json:"code"`
	Detail    string `json:"detail"`
	Field     string `json:"field"`
	Limit     string `json:"limit"`
	Option    string `json:"option"`
	RequestID string `json:"request_id"`
	after     time.Duration
}

func (e *refusal) Error() string {
	if e.Code == "project_required" {
		return "there are several projects: name one with --project (rollcall projects list)"
	}
	s := fmt.Sprintf("the server says %d %s: %s", e.Status, e.Code, e.Detail)
	for _, x := range [][2]string{{"field", e.Field}, {"limit", e.Limit}, {"option", e.Option}, {"request", e.RequestID}} {
		if x[1] != "" {
			s += fmt.Sprintf(" [%s %s]", x[0], x[1])
		}
	}
	return s
}

// refused reads a problem document, or makes do with what there is.
func refused(res *http.Response) error {
	e := &refusal{}
	body, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind != "application/problem+json" || err != nil || json.Unmarshal(body, e) != nil {
		e = &refusal{Code: "unknown", Detail: "not an answer of rollcall: " + strconv.Quote(string(body[:min(len(body), 200)]))}
	}
	e.Status = res.StatusCode
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s >= 0 {
		e.after = min(time.Duration(s)*time.Second, time.Minute)
	}
	return e
}
