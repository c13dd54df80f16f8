package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/internal/config"
	"github.com/rollcall/rollcall/internal/obs"
	"github.com/rollcall/rollcall/internal/projection"
)

func rebuildCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rebuild PROJECTION",
		Short: "Empty a projection, to be counted again from the journal",
		Long: "Rebuild is the way out when serve says that a projection is half written or does not fit its journal, zones or shards. It deletes the\n" +
			"projection's keys and offsets in Redis; the next serve counts the whole journal again, by its own configuration. Stop every serve first.\n" +
			"It changes nothing when the journal no longer begins with its first record. Projections: " + counters.Name + ".",
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{counters.Name},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			return rebuild(cmd, c, args[0])
		},
	}
	config.AddFlags(cmd.Flags())
	return cmd
}

func rebuild(cmd *cobra.Command, c config.Config, name string) (err error) {
	if name != counters.Name {
		return fmt.Errorf("no projection %q: there is %s", name, counters.Name)
	}
	log, err := obs.NewLog(cmd.ErrOrStderr(), c.Log.Level, c.Log.Format)
	if err != nil {
		return err
	}
	if dir := filepath.Join(c.Data, "journal"); c.Journal.URL == "" {
		if _, err := os.Stat(dir); err != nil {
			return fmt.Errorf("there is no journal to count again: %w; name the data folder of serve with --data", err)
		}
	}
	n := &node{c: c, log: log}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), time.Duration(c.Shutdown.Grace))
		defer cancel()
		err = errors.Join(err, n.closeStores(end))
	}()
	if err := n.openStores(cmd.Context()); err != nil {
		return err
	}
	if err := n.redis.CheckServer(cmd.Context()); err != nil {
		return err
	}
	shards, err := n.recordedShards(cmd.Context())
	if err != nil {
		return err
	}
	records, err := projection.Rebuild(cmd.Context(), n.journal, n.redis.Commit, shards, name)
	if err != nil {
		return err
	}
	// Nothing is counted any more, so zones, shards and journal may be other ones from now on.
	if err := n.forgetInstall(cmd.Context()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is empty; the next `rollcall serve --data %s` counts %d journal records again.\n",
		name, filepath.Clean(c.Data), records)
	return err
}
