package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/counters/breakdown"
	"github.com/rollcall/rollcall/counters/users"
	"github.com/rollcall/rollcall/ingest/drops"
	"github.com/rollcall/rollcall/internal/config"
	"github.com/rollcall/rollcall/internal/obs"
	"github.com/rollcall/rollcall/internal/ordinal"
	"github.com/rollcall/rollcall/internal/projection"
)

// allProjections are the names that rebuild takes, beside all.
var allProjections = []string{ordinal.Name, counters.Name, users.Name, breakdown.Name, drops.Name}

func rebuildCommand() *cobra.Command {
	var partial bool
	cmd := &cobra.Command{
		Use:   "rebuild PROJECTION|all",
		Short: "Empty a projection, to be counted again from the journal",
		Long: "Rebuild is the way out when serve says that a projection is half written or does not fit its journal, zones or shards. It deletes the\n" +
			"projection's keys and offsets in Redis; the next serve counts the whole journal again, by its own configuration. Stop every serve first.\n" +
			"It changes nothing when the journal no longer begins with its first record. Projections: " + strings.Join(allProjections, ", ") + ".\n" +
			"What does not fit the zones, the shards or the journal takes all.",
		Args:      cobra.ExactArgs(1),
		ValidArgs: append([]string{"all"}, allProjections...),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			return rebuild(cmd, c, args[0], partial)
		},
	}
	config.AddFlags(cmd.Flags())
	cmd.Flags().BoolVar(&partial, "partial", false, "of "+drops.Name+": count again what the journal still has, and lose what came before")
	return cmd
}

func rebuild(cmd *cobra.Command, c config.Config, what string, partial bool) (err error) {
	names := []string{what}
	switch {
	case what == "all":
		names = allProjections
	case what == ordinal.Name:
		names = []string{ordinal.Name, users.Name} // users may get other ordinals, which the sets stand on
	case !slices.Contains(allProjections, what):
		return fmt.Errorf("no projection %q: there are %s, and all", what, strings.Join(allProjections, ", "))
	}
	if partial && what != drops.Name {
		return fmt.Errorf("--partial is for %s alone: counts without their beginning would be wrong", drops.Name)
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
	if what != "all" {
		if err := n.fitsInstall(cmd.Context()); err != nil {
			return err
		}
	}
	var records uint64
	if partial {
		records, err = projection.RebuildRest(cmd.Context(), n.journal, n.redis.Commit, shards, what)
	} else {
		records, err = projection.Rebuild(cmd.Context(), n.journal, n.redis.Commit, shards, names...)
	}
	if errors.Is(err, projection.ErrTrimmed) && what == drops.Name {
		return fmt.Errorf("%w\nTo count again what it still has, and lose the rest: rollcall rebuild %s --partial", err, what)
	}
	if err != nil {
		return err
	}
	if what == "all" {
		// Nothing is counted any more, so zones, shards and journal may be other ones from now on.
		if err := n.forgetInstall(cmd.Context()); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: empty; the next `rollcall serve --data %s` counts %d journal records again.\n",
		strings.Join(names, ", "), filepath.Clean(c.Data), records)
	return err
}

// fitsInstall tells whether the counts that stay fit the configuration: those of one projection can't be in other shards than the rest.
func (n *node) fitsInstall(ctx context.Context) error {
	have, err := n.redis.Commit.HGetAll(ctx, installKey).Result()
	if err != nil {
		return fmt.Errorf("reading %s: %w", installKey, err)
	}
	return compareInstall(n.install(), have)
}
