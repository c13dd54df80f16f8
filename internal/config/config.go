// Package config is the one struct that holds every option of rollcall, and its loader: flag over environment over file over
// default, with every fault reported at once. Only cmd imports it.
package config

import (
	"net"
	"strings"
	"time"
	_ "time/tzdata" // a zone must load on a machine without zone files

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/limit"
	"github.com/rollcall/rollcall/internal/project"
	"github.com/rollcall/rollcall/internal/redisx"
	"github.com/rollcall/rollcall/internal/visitor"
)

// Config is every option. The koanf tag is the option's name in the file, as a flag (--journal.max_bytes) and, in capitals with
// underscores after ROLLCALL_, in the environment (ROLLCALL_JOURNAL_MAX_BYTES). doc is its help.
type Config struct {
	Listen     string    `koanf:"listen" doc:"address of the HTTP server, HOST:PORT"`
	Data       string    `koanf:"data" doc:"folder of keys, journal, dedup store and managed Redis"`
	Zone       string    `koanf:"zone" doc:"IANA zone of each project that names none; fixed at a project's first start"`
	LateWindow Duration  `koanf:"late_window" doc:"events older than this are refused as too_late, in each project that says nothing else"`
	Projects   []Project `koanf:"projects"`
	Redis      Redis     `koanf:"redis"`
	Journal    Journal   `koanf:"journal"`
	Dedup      Dedup     `koanf:"dedup"`
	HTTP       HTTP      `koanf:"http"`
	TLS        TLS       `koanf:"tls"`
	Limits     Limits    `koanf:"limits"`
	Shards     int       `koanf:"shards" doc:"parts that Redis state is split into, 1 to 256; fixed at the first start"`
	Log        Log       `koanf:"log"`
	Shutdown   Shutdown  `koanf:"shutdown"`
}

// Project is one tenant. Without any in the file there is one, "demo".
type Project struct {
	project.Spec
	Keys []Key `koanf:"keys"`
}

// Key is one key, stored as its SHA-256.
type Key struct {
	Kind    string `koanf:"kind"`   // write, read, admin
	SHA256  string `koanf:"sha256"` // 64 hex digits
	Name    string `koanf:"name"`
	Expires string `koanf:"expires"` // RFC 3339; "" = never
}

// HTTP says who may talk to the server and how.
type HTTP struct {
	TrustedProxies List `koanf:"trusted_proxies" doc:"proxies whose X-Forwarded-For is believed: addresses and CIDRs, with commas between"`
	Origins        List `koanf:"origins" doc:"web origins that may read answers to beacons, in each project that names none, with commas between; * for any"`
}

// TLS says where the certificate is. Both files are read again when they change.
type TLS struct {
	Cert string `koanf:"cert" doc:"file of the certificate chain, PEM; empty = no TLS here"`
	Key  string `koanf:"key" doc:"file of the certificate's key, PEM"`
}

// Redis says where the counts live.
type Redis struct {
	URL Secret `koanf:"url" doc:"redis:// rediss:// unix:// redis+sentinel:// redis+cluster://; empty = a managed redis-server in the data folder"`
}

// Journal says where accepted events are kept, and for how long.
type Journal struct {
	URL      Secret   `koanf:"url" doc:"nats://HOST:PORT[,HOST:PORT] of an external cluster; empty = in process, in the data folder"`
	MaxBytes Size     `koanf:"max_bytes" doc:"disk quota; when it is reached and nothing may be dropped, new events get 503; 0 = no quota"`
	MaxAge   Duration `koanf:"max_age" doc:"records that every projection has passed are kept this long"`
	MinFree  Size     `koanf:"min_free" doc:"new events get 503 below this much free disk"`
}

// Dedup says how long an event id is remembered.
type Dedup struct {
	Window Duration `koanf:"window" doc:"an event id that comes again within this time changes nothing"`
}

// Limits bound one request, and how many come.
type Limits struct {
	MaxBody   Size `koanf:"max_body" doc:"largest request body after decompression"`
	MaxEvents int  `koanf:"max_events" doc:"most events in one request"`
	MaxEvent  Size `koanf:"max_event" doc:"largest event as it stands in the body"`

	QueryBytes Size     `koanf:"query_bytes" doc:"bytes of users' sets that one question may read"`
	QueryTime  Duration `koanf:"query_time" doc:"time that one question about users may take"`

	KeyRate     limit.Rate `koanf:"key_rate" doc:"most events by one key, as 1000/s or 50000/m burst 100000, in each project that says nothing else; empty = no limit"`
	AddressRate limit.Rate `koanf:"address_rate" doc:"most events from one client address (of IPv6 one /64); empty = no limit"`
	SyncRate    limit.Rate `koanf:"sync_rate" doc:"most calls by one key that wait for their result (?wait=, queries), over all nodes; empty = no limit"`
}

// Log says what the log on stderr looks like.
type Log struct {
	Level  string `koanf:"level" doc:"debug, info, warn or error; debug logs every request"`
	Format string `koanf:"format" doc:"text, json, or auto: text on a terminal"`
}

// Shutdown says how a stop goes.
type Shutdown struct {
	Grace Duration `koanf:"grace" doc:"longest time from the signal to the exit; requests still being sent after three fifths of it are cut"`
	Delay Duration `koanf:"delay" doc:"time between readiness going red and the end of new connections, for a load balancer to notice; part of grace"`
}

// Default returns the options of a start without any configuration.
func Default() Config {
	const week = 7 * 24 * time.Hour
	return Config{
		Listen:     "127.0.0.1:8080",
		Data:       "data",
		Zone:       "UTC",
		LateWindow: Duration(week),
		Journal:    Journal{MaxBytes: 16 << 30, MaxAge: Duration(week), MinFree: 256 << 20},
		Dedup:      Dedup{Window: Duration(week)},
		HTTP:       HTTP{Origins: List{"*"}},
		Limits:     Limits{MaxBody: 8 << 20, MaxEvents: 5000, MaxEvent: 64 << 10, QueryBytes: 256 << 20, QueryTime: Duration(10 * time.Second)},
		Shards:     16,
		Log:        Log{Level: "info", Format: "auto"},
		Shutdown:   Shutdown{Grace: Duration(25 * time.Second)},
	}
}

// Complete fills what follows from other options: the demo project, and each project's zone and late window.
func (c *Config) Complete() {
	if len(c.Projects) == 0 {
		c.Projects = []Project{{Spec: project.Spec{
			ID: "demo", Breakdowns: []project.Breakdown{{Event: "page_view", Props: []string{"page", "referrer"}}}, // what rollcall.js sends
		}}}
	}
	for i := range c.Projects {
		c.Projects[i].Complete(c.Zone, c.LateWindow)
	}
}

// Validate returns every fault of a completed configuration, nil if there is none.
func (c *Config) Validate() Faults {
	var f Faults
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		f.add("listen", "want HOST:PORT, have %q", c.Listen)
	}
	if c.Data == "" {
		f.add("data", "must name a folder")
	}
	zone(&f, "zone", c.Zone)
	within(&f, "late_window", c.LateWindow, time.Minute, 400*24*time.Hour)
	within(&f, "dedup.window", c.Dedup.Window, time.Hour, 90*24*time.Hour)
	within(&f, "journal.max_age", c.Journal.MaxAge, time.Hour, 400*24*time.Hour)
	if c.Journal.MaxAge > 0 && c.Dedup.Window > c.Journal.MaxAge {
		f.add("journal.max_age", "%s is shorter than dedup.window (%s): a dedup store made anew from the journal would have forgotten ids", c.Journal.MaxAge, c.Dedup.Window)
	}
	if c.Journal.MaxBytes != 0 && c.Journal.MaxBytes < 64<<20 {
		f.add("journal.max_bytes", "%s is too small: at least 64MiB, or 0 for no quota", c.Journal.MaxBytes)
	}
	if c.Shards < 1 || c.Shards > 256 {
		f.add("shards", "%d: want 1 to 256", c.Shards)
	}
	if c.Limits.MaxBody < 16<<10 || c.Limits.MaxBody > 8<<20 {
		f.add("limits.max_body", "%s: want 16KiB to 8MiB", c.Limits.MaxBody)
	}
	if c.Limits.MaxEvents < 1 || c.Limits.MaxEvents > 5000 {
		f.add("limits.max_events", "%d: want 1 to 5000", c.Limits.MaxEvents)
	}
	if c.Limits.MaxEvent < 1<<10 || c.Limits.MaxEvent > c.Limits.MaxBody {
		f.add("limits.max_event", "%s: want 1KiB to limits.max_body", c.Limits.MaxEvent)
	}
	if c.Limits.QueryBytes < 1<<20 || c.Limits.QueryBytes > 16<<30 {
		f.add("limits.query_bytes", "%s: want 1MiB to 16GiB", c.Limits.QueryBytes)
	}
	within(&f, "limits.query_time", c.Limits.QueryTime, 100*time.Millisecond, 50*time.Second)
	oneOf(&f, "log.level", c.Log.Level, "debug", "info", "warn", "error")
	oneOf(&f, "log.format", c.Log.Format, "auto", "text", "json")
	within(&f, "shutdown.grace", c.Shutdown.Grace, time.Second, 10*time.Minute)
	if c.Shutdown.Delay > c.Shutdown.Grace/2 {
		f.add("shutdown.delay", "%s is more than half of shutdown.grace (%s)", c.Shutdown.Delay, c.Shutdown.Grace)
	}
	if c.Redis.URL != "" {
		if err := redisx.CheckURL(string(c.Redis.URL)); err != nil {
			f.add("redis.url", "%s", strings.TrimPrefix(err.Error(), "redis.url "))
		}
	}
	c.http(&f)
	c.rates(&f)
	c.projects(&f)
	return f
}

func (c *Config) http(f *Faults) {
	if _, err := visitor.ParseProxies(c.HTTP.TrustedProxies); err != nil {
		f.add("http.trusted_proxies", "%v", err)
	}
	project.CheckOrigins(c.HTTP.Origins, func(field, text string) { f.add("http."+field, "%s", text) })
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		f.add("tls", "cert and key come together")
	}
}

// rates holds the common rates against what the parts behind them can do.
func (c *Config) rates(f *Faults) {
	for name, r := range map[string]limit.Rate{"limits.address_rate": c.Limits.AddressRate, "limits.key_rate": c.Limits.KeyRate} {
		if !r.IsZero() && r.Burst < c.Limits.MaxEvents {
			f.add(name, "its burst of %d is less than limits.max_events (%d): such a request could never pass", r.Burst, c.Limits.MaxEvents)
		}
	}
	if r := c.Limits.SyncRate; !r.IsZero() {
		if err := limit.ValidateWindow(r.Count, r.Per, false); err != nil {
			f.add("limits.sync_rate", "%s", apperr.As(err).Detail)
		}
	}
}

func (c *Config) projects(f *Faults) {
	seen := map[string]bool{}
	for i, p := range c.Projects {
		at := item("projects", i)
		p.Check(func(field, text string) {
			// What a project has from the whole configuration is reported there.
			if field == "zone" && p.Zone == c.Zone || field == "late_window" && p.LateWindow == c.LateWindow {
				return
			}
			f.add(at+"."+field, "%s", text)
		})
		if seen[p.ID] {
			f.add(at+".id", "%q comes twice", p.ID)
		}
		seen[p.ID] = true
		for k, key := range p.Keys {
			at := item(at+".keys", k)
			oneOf(f, at+".kind", key.Kind, "write", "read", "admin")
			if hash := strings.ToLower(key.SHA256); len(hash) != 64 || strings.Trim(hash, "0123456789abcdef") != "" {
				f.add(at+".sha256", "want the 64 hex digits of the key's SHA-256, in quotes")
			} else if seen[hash] {
				f.add(at+".sha256", "the key is listed twice")
			} else {
				seen[hash] = true
			}
			if _, err := time.Parse(time.RFC3339, key.Expires); key.Expires != "" && err != nil {
				f.add(at+".expires", "want an instant such as 2027-01-01T00:00:00Z")
			}
		}
	}
}

func zone(f *Faults, name, value string) {
	// time.LoadLocation takes "" for UTC and "Local" for the machine's zone: neither names a zone.
	if value == "" || value == "Local" {
		f.add(name, "%q: want an IANA zone such as Asia/Shanghai", value)
	} else if _, err := time.LoadLocation(value); err != nil {
		f.add(name, "%q is no IANA zone; they look like Asia/Shanghai", value)
	}
}

func within(f *Faults, name string, d Duration, low, high time.Duration) {
	if time.Duration(d) < low || time.Duration(d) > high {
		f.add(name, "%s: want %s to %s", d, Duration(low), Duration(high))
	}
}

func oneOf(f *Faults, name, value string, allowed ...string) {
	for _, a := range allowed {
		if value == a {
			return
		}
	}
	f.add(name, "%q: want one of %s", value, strings.Join(allowed, ", "))
}
