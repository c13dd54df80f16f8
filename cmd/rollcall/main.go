// Command rollcall counts for products: it takes events over HTTP and answers who came and how often. This package is JOIN: it
// reads the configuration, builds every part and holds the subcommands.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rollcall/rollcall/internal/config"
)

// version is set by the Makefile from git.
var version = ""

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the whole program. It returns the exit code: 0, or 1 after a line on stderr.
func run(args []string, stdout, stderr io.Writer) int {
	// The first signal ends the context, and with it the program in order; the second one ends it at once.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	defer stop()
	root := rootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		if !errors.Is(err, errSilent) {
			fmt.Fprintln(stderr, "rollcall:", err)
		}
		return 1
	}
	return 0
}

// errSilent ends the program with code 1 when everything has been said.
var errSilent = errors.New("")

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "rollcall",
		Short:         "Counts for products: PV and UV, live and exact through any crash",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.PersistentFlags().String("config", "", "configuration file (default rollcall.yaml, if there is one; or ROLLCALL_CONFIG)")
	root.AddCommand(serveCommand(), importCommand(), countsCommand(), namesCommand(), breakdownCommand(), usersCommand(), activeCommand(), retentionCommand(), overlapCommand(), cohortsCommand(),
		dropsCommand(), projectsCommand(), keysCommand(), rebuildCommand(), configCommand(), versionCommand())
	return root
}

// loadConfig reads every source of a command's configuration.
func loadConfig(cmd *cobra.Command) (config.Config, error) {
	file, err := cmd.Flags().GetString("config")
	if err != nil {
		return config.Config{}, err
	}
	if file == "" {
		file = os.Getenv("ROLLCALL_CONFIG")
	}
	return config.Load(config.Sources{File: file, Environ: os.Environ(), Flags: cmd.Flags()})
}

func configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the effective configuration, secrets hidden",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			return c.Print(cmd.OutOrStdout())
		},
	}
	config.AddFlags(cmd.Flags())
	return cmd
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "rollcall", buildVersion())
			return err
		},
	}
}

// buildVersion is what the Makefile set, or what the Go tool knows.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
