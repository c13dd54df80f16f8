package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/rollcall/rollcall/internal/obs"
)

// banner tells a person what runs and what to do next. The write key is public by nature; the others are shown on a terminal only,
// elsewhere their files are named.
func (n *node) banner(w io.Writer, url string) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "rollcall %s answers at %s\n\n", buildVersion(), url)
	for _, p := range n.c.Projects {
		line("project", "%s, days in %s", p.ID, p.Zone)
	}
	redis := n.redis.Info()
	if redis.Managed {
		line("redis", "%s, a child of this process, in %s", redis.Version, filepath.Join(n.c.Data, "redis"))
	} else {
		line("redis", "%s (%s)", redis.Address, redis.Mode)
	}
	if n.c.Journal.URL == "" {
		line("journal", "in this process, in %s", filepath.Join(n.c.Data, "journal"))
	} else {
		line("journal", "%s", n.c.Journal.URL)
	}
	line("health", "%s/readyz  %s/metrics", url, url)
	n.bannerKeys(line, obs.IsTerminal(w))
	if n.keys.write != "" {
		fmt.Fprintf(&b, "\nSend an event and ask for the count:\n\n"+
			"  curl -sS '%s/v1/events?wait=2s' -H 'Authorization: Bearer %s' -d '{\"event\":\"page_view\",\"user\":\"u42\"}'\n"+
			"  %s counts --event page_view --data %s%s\n", url, n.keys.write, shellWord(os.Args[0]), shellWord(n.c.Data), n.named())
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// named is the flag that names the configured project, if there are others.
func (n *node) named() string {
	if n.dir.Only() == nil {
		return " --project " + n.c.Projects[0].ID
	}
	return ""
}

func (n *node) bannerKeys(line func(name, format string, args ...any), show bool) {
	key := func(name, key, file string, show bool) {
		switch path := filepath.Join(n.c.Data, file); {
		case key == "":
		case show:
			line(name, "%s  (%s)", key, path)
		default:
			line(name, "in %s", path)
		}
	}
	key("write key", n.keys.write, writeName, true)
	key("read key", n.keys.read, readName, show)
	key("admin key", n.keys.admin, adminName, show)
}

// shellWord quotes a path for a shell when it needs it.
func shellWord(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-") == "" && s != "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
