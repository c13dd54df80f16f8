package redisx

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// target is a parsed URL. It holds the password: print address() instead.
type target struct {
	mode     string // single, sentinel, cluster
	master   string // Sentinel's name for it
	replicas bool
	options  redis.UniversalOptions
}

// address is where, without credentials.
func (t target) address() string {
	s := strings.Join(t.options.Addrs, ",")
	if t.master != "" {
		s += "/" + t.master
	}
	return s
}

// No error quotes the URL, nor a part of it that could be a piece of a password with an unescaped "/", "?", "#" or "@".
func badURL(format string, args ...any) error {
	return unfitError{"redis.url " + fmt.Sprintf(format, args...)}
}

// CheckURL tells what is wrong with the form of a URL; it connects to nothing.
func CheckURL(raw string) error {
	_, err := parseURL(raw)
	return err
}

// parseURL reads the forms of Options.URL. net/url does not take lists of hosts, and quotes passwords in its errors.
func parseURL(raw string) (target, error) {
	var t target
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return t, badURL("has no scheme: redis://host:port/db is the usual form")
	}
	base, kind, _ := strings.Cut(scheme, "+")
	port := "6379"
	switch {
	case kind == "" && (base == "redis" || base == "rediss" || base == "unix"):
		t.mode = "single"
	case kind == "sentinel" && (base == "redis" || base == "rediss"):
		t.mode, port = "sentinel", "26379"
	case kind == "cluster" && (base == "redis" || base == "rediss"):
		t.mode = "cluster"
	default:
		return t, badURL("has an unknown scheme: want redis, rediss, unix, redis+sentinel, rediss+sentinel, redis+cluster or rediss+cluster")
	}

	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, tail := rest[:end], rest[end:]
	if strings.ContainsAny(tail, "@#") {
		return t, badURL(`has "@" or "#" after the host: write / ? # @ in a password as %%2F %%3F %%23 %%40`)
	}
	path, query, _ := strings.Cut(tail, "?")
	path, err := url.PathUnescape(path)
	if err != nil {
		return t, badURL("has a broken %%-escape in its path")
	}
	hosts := authority
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		hosts = authority[at+1:]
		if err := t.login(authority[:at]); err != nil {
			return t, err
		}
	}
	if base == "rediss" {
		t.options.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}

	var db string
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	switch {
	case base == "unix":
		if hosts != "" || path == "" || path == "/" {
			return t, badURL("wants the absolute path of a socket: unix:///path/to/redis.sock")
		}
		t.options.Addrs = []string{path}
	case t.mode == "single" && len(parts) <= 1:
		db = strings.Join(parts, "")
	case t.mode == "sentinel" && (len(parts) == 1 || len(parts) == 2):
		t.master = parts[0]
		db = strings.Join(parts[1:], "")
	case t.mode == "cluster" && len(parts) == 0:
	default:
		return t, badURL("has a wrong path: redis://host/db, redis+sentinel://host,host/master/db, redis+cluster://host,host")
	}
	if base != "unix" {
		if t.options.Addrs, err = addresses(hosts, port); err != nil {
			return t, err
		}
		if t.mode == "single" && len(t.options.Addrs) > 1 {
			return t, badURL("names several hosts: use redis+sentinel:// or redis+cluster://")
		}
	}
	if db != "" {
		if t.options.DB, err = strconv.Atoi(db); err != nil || t.options.DB < 0 {
			return t, badURL("wants a number as database")
		}
	}
	return t, t.query(query)
}

// login reads user:password, each %-escaped.
func (t *target) login(s string) (err error) {
	user, password, ok := strings.Cut(s, ":")
	if !ok {
		return badURL("has a login without a password: write user:password@, or :password@ without a user")
	}
	if t.options.Username, err = url.PathUnescape(user); err == nil {
		t.options.Password, err = url.PathUnescape(password)
	}
	if err != nil {
		return badURL("has a broken %%-escape in its login: write %% in a password as %%25")
	}
	return nil
}

func addresses(hosts, port string) ([]string, error) {
	var out []string
	for h := range strings.SplitSeq(hosts, ",") {
		u, err := url.Parse("//" + h) // knows brackets and checks the port
		if err != nil || u.Hostname() == "" || u.Host != h {
			return nil, badURL("wants host:port, or several separated by commas, after the login")
		}
		if p := u.Port(); p != "" {
			if n, err := strconv.Atoi(p); err != nil || n < 1 || n > 65535 {
				return nil, badURL("wants a port of 1 to 65535")
			}
			out = append(out, net.JoinHostPort(u.Hostname(), p))
		} else {
			out = append(out, net.JoinHostPort(u.Hostname(), port))
		}
	}
	return out, nil
}

// query reads what stands after "?".
func (t *target) query(raw string) error {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return badURL("has options that cannot be read: name=value, separated by &")
	}
	o := &t.options
	for name, v := range values {
		value := v[len(v)-1]
		var err error
		switch name {
		case "db":
			if o.DB, err = strconv.Atoi(value); o.DB < 0 {
				err = strconv.ErrRange
			}
		case "client_name":
			o.ClientName = value
		case "pool_size":
			if o.PoolSize, err = strconv.Atoi(value); err == nil && (o.PoolSize < 1 || o.PoolSize > 10_000) {
				err = strconv.ErrRange
			}
		case "dial_timeout":
			o.DialTimeout, err = duration(value)
		case "read_timeout":
			o.ReadTimeout, err = duration(value)
		case "write_timeout":
			o.WriteTimeout, err = duration(value)
		case "skip_verify":
			if o.TLSConfig == nil {
				return badURL("has skip_verify, which needs TLS (rediss)")
			}
			o.TLSConfig.InsecureSkipVerify, err = strconv.ParseBool(value)
		case "read_replicas":
			if t.mode == "single" {
				return badURL("has read_replicas, which needs redis+sentinel or redis+cluster")
			}
			t.replicas, err = strconv.ParseBool(value)
		case "sentinel_username":
			o.SentinelUsername = value
		case "sentinel_password":
			o.SentinelPassword = value
		default:
			return badURL("has an unknown option: known are db, client_name, pool_size, dial_timeout, read_timeout, write_timeout, " +
				"skip_verify, read_replicas, sentinel_username, sentinel_password")
		}
		if err != nil {
			return badURL("has a bad value for %s", name)
		}
	}
	if t.mode == "cluster" && o.DB != 0 {
		return badURL("names a database: a cluster has only 0")
	}
	return nil
}

// duration takes 100 ms to 10 min: a wait without an end would stop the projector for good.
func duration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err == nil && (d < 100*time.Millisecond || d > 10*time.Minute) {
		err = strconv.ErrRange
	}
	return d, err
}
