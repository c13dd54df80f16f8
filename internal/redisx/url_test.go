package redisx

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestParseURL(t *testing.T) {
	for _, c := range []struct{ raw, want string }{
		{"redis://localhost", "single [localhost:6379] 0 : tls=false"},
		{"redis://h:7000/3", "single [h:7000] 3 : tls=false"},
		{"redis://h:7000/?db=4", "single [h:7000] 4 : tls=false"},
		{"redis://:p%40ss%2F@[::1]:7000", "single [[::1]:7000] 0 :p@ss/ tls=false"},
		{"rediss://u:p:q@h/1?skip_verify=true", "single [h:6379] 1 u:p:q tls=true"},
		{"unix:///run/a%20b/redis.sock?db=2", "single [/run/a b/redis.sock] 2 : tls=false"},
		{"unix://u:p@/redis.sock", "single [/redis.sock] 0 u:p tls=false"},
		{"redis+sentinel://u:p@a,b:7,[::1]/main/5", "sentinel [a:26379 b:7 [::1]:26379]/main 5 u:p tls=false"},
		{"redis+sentinel://a/main?sentinel_username=su&sentinel_password=s%26p&read_replicas=true", "sentinel [a:26379]/main 0 : tls=false replicas su:s&p"},
		{"rediss+cluster://:p@a:1,b", "cluster [a:1 b:6379] 0 :p tls=true"},
		{"redis+cluster://a?read_replicas=1", "cluster [a:6379] 0 : tls=false replicas"},
	} {
		got, err := parseURL(c.raw)
		if err != nil {
			t.Errorf("%s: %v", c.raw, err)
			continue
		}
		o := got.options
		text := fmt.Sprintf("%s %v", got.mode, o.Addrs)
		if got.master != "" {
			text += "/" + got.master
		}
		text += fmt.Sprintf(" %d %s:%s tls=%v", o.DB, o.Username, o.Password, o.TLSConfig != nil)
		if got.replicas {
			text += " replicas"
		}
		if o.SentinelUsername != "" {
			text += " " + o.SentinelUsername + ":" + o.SentinelPassword
		}
		if text != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.raw, text, c.want)
		}
	}
	got, err := parseURL("redis://h?dial_timeout=1s&read_timeout=2s&write_timeout=300ms&pool_size=7&client_name=rc")
	if o := got.options; err != nil || o.DialTimeout != time.Second || o.ReadTimeout != 2*time.Second || o.WriteTimeout != 300*time.Millisecond ||
		o.PoolSize != 7 || o.ClientName != "rc" {
		t.Errorf("options: %+v, %v", o, err)
	}
}

// Wrong URLs are refused with a hint and without a piece of the password, here always "s3" and "cret".
func TestParseURL_Refused(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                "no scheme",
		"localhost:6379":                  "no scheme",
		"http://h":                        "unknown scheme",
		"unix+sentinel:///x":              "unknown scheme",
		"redis+x://h":                     "unknown scheme",
		"redis://":                        "host:port",
		"redis://h:x":                     "host:port",
		"redis://h:99999":                 "1 to 65535",
		"redis://a,b":                     "several hosts",
		"redis://a/1/2":                   "path",
		"redis://a/x":                     "number as database",
		"redis://a/-1":                    "number as database",
		"redis://s3cret@h":                "without a password",
		"redis://u:s3/cret@h":             "in a password",
		"redis://u:s3?cret@h":             "in a password",
		"redis://u:s3#cret@h":             "in a password",
		"redis://u:s3%zzcret@h":           "%25",
		"redis://:s3cret@h:s3cret":        "host:port",
		"redis://u:s3cret@h?s3cret=1":     "unknown option",
		"redis://u:s3cret@h?max_retries=": "unknown option",
		"redis://h?pool_size=0":           "pool_size",
		"redis://h?read_timeout=0":        "read_timeout",
		"redis://h?read_timeout=24h":      "read_timeout",
		"redis://h?%zz":                   "options",
		"redis://h?skip_verify=true":      "TLS",
		"redis://h?read_replicas=true":    "redis+sentinel or redis+cluster",
		"redis+cluster://h/1":             "path",
		"redis+cluster://h?db=1":          "only 0",
		"redis+sentinel://h":              "path",
		"redis+sentinel://h,,i/main":      "host:port",
		"unix://":                         "absolute path",
		"unix://h/x.sock":                 "absolute path",
	} {
		_, err := parseURL(raw)
		if !errors.Is(err, ErrUnfit) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%q: %v; want ErrUnfit with %q", raw, err, want)
			continue
		}
		if strings.Contains(err.Error(), "s3") || strings.Contains(err.Error(), "cret") {
			t.Errorf("%q: the error shows the password: %v", raw, err)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	f.Add("redis://u:p@h:1/2?db=3")
	f.Add("redis+sentinel://a,b:7,[::1]/main/5")
	f.Add("unix:///x.sock")
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := parseURL(raw)
		if err == nil && len(got.options.Addrs) == 0 {
			t.Errorf("%q: no error and no address", raw)
		}
		if err == nil && got.options.DB < 0 {
			t.Errorf("%q: database %d", raw, got.options.DB)
		}
	})
}
