package main

import (
	"fmt"
	"os"
	"os/signal"
	"reflect"
	"syscall"

	"github.com/rollcall/rollcall/internal/config"
)

// reloadOnHangup reads the configuration again at each SIGHUP until the node ends, and takes over its projects and keys. Everything
// else takes a restart. A configuration with a fault changes nothing.
func (n *node) reloadOnHangup(load func() (config.Config, error)) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	go func() {
		defer signal.Stop(hangup)
		for {
			select {
			case <-n.life.Done():
				return
			case <-hangup:
				if err := n.reload(load); err != nil {
					n.log.Error("the configuration was read again and not taken over", "err", err)
				}
			}
		}
	}()
}

func (n *node) reload(load func() (config.Config, error)) error {
	c, err := load()
	if err != nil {
		return err
	}
	projects, keys, err := n.configured(c)
	if err != nil {
		return err
	}
	for _, p := range projects {
		if old := n.zones.known(p.ID); old != nil && old.String() != p.Zone {
			return fmt.Errorf("project %s is counted in zone %s, the configuration says %s: a zone can't change", p.ID, old, p.Zone)
		}
	}
	n.dir.Configure(projects, keys)
	rest := c
	rest.Projects = n.c.Projects
	if !reflect.DeepEqual(rest, n.c) {
		n.log.Warn("the configuration has changed beyond projects and keys: that takes a restart")
	}
	n.log.Info("projects and keys taken over", "projects", len(projects), "keys", len(keys))
	return nil
}
