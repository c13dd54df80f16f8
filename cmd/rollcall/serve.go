package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/rollcall/rollcall/internal/config"
	"github.com/rollcall/rollcall/internal/obs"
)

func serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Take events and answer queries",
		Long: "Serve takes events over HTTP, keeps them in its journal and counts them in Redis. Without configuration it has one project, demo,\n" +
			"a journal in the process and a redis-server of its own, all below ./data.\n\n" +
			"Every flag is also an option of rollcall.yaml under the same name and a variable: --journal.max_bytes is ROLLCALL_JOURNAL_MAX_BYTES.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			return serve(cmd, c, func() (config.Config, error) { return loadConfig(cmd) })
		},
	}
	config.AddFlags(cmd.Flags())
	return cmd
}

// serve runs a node until the command's context ends, then stops it within shutdown.grace.
func serve(cmd *cobra.Command, c config.Config, again func() (config.Config, error)) (err error) {
	tune()
	ctx := cmd.Context()
	log, err := obs.NewLog(cmd.ErrOrStderr(), c.Log.Level, c.Log.Format)
	if err != nil {
		return err
	}
	// The address first: whether it is free is known at once, all else takes longer.
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("%w\nChoose another address with --listen HOST:PORT", err)
	}
	defer listener.Close() // again after a normal stop: harmless

	n, err := newNode(ctx, c, log)
	if err != nil {
		return err
	}
	faults := make(chan error, 2)
	go func() { faults <- n.server.Serve(listener) }()
	n.startProjector(faults)
	n.reloadOnHangup(again)

	url := baseURL(listener.Addr(), c.TLS.Cert != "")
	for name, text := range map[string]string{urlName: url, pidName: strconv.Itoa(os.Getpid())} {
		file := filepath.Join(c.Data, name)
		if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
			return errors.Join(err, n.stop(c.Shutdown))
		}
		defer func() { err = errors.Join(err, os.Remove(file)) }()
	}
	if err := n.banner(cmd.OutOrStdout(), url); err != nil {
		log.Warn("writing to stdout", "err", err)
	}
	log.Info("serving", "version", buildVersion(), "listen", listener.Addr().String(), "data", c.Data)

	select {
	case <-ctx.Done():
		log.Info("stopping", "grace", c.Shutdown.Grace.String())
	case err = <-faults:
		log.Error("stopping after a fault", "err", err)
	}
	began := time.Now()
	if err = errors.Join(err, n.stop(c.Shutdown)); err != nil {
		return fmt.Errorf("not drained: %w", err)
	}
	log.Info("stopped", "took", time.Since(began).String())
	return nil
}

// baseURL is where a client on this machine reaches the server.
func baseURL(a net.Addr, secure bool) string {
	scheme := "http://"
	if secure {
		scheme = "https://"
	}
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return scheme + a.String()
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + net.JoinHostPort(host, port)
}

// openLimit is how long a part may take to open. A managed Redis reads a large append-only file at about a million commands a
// second; what is far away and does not answer by then won't.
func openLimit(ctx context.Context, url config.Secret) (context.Context, context.CancelFunc) {
	if url != "" {
		return context.WithTimeout(ctx, 30*time.Second)
	}
	return context.WithTimeout(ctx, 10*time.Minute)
}
