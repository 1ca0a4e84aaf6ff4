package cli

import (
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/internal/runtime"
	"github.com/berth-run/berth/internal/server/api"
)

func (a *app) runtimeCommand() *cobra.Command {
	var (
		listen string
		l      logFlagSet
	)
	cmd := &cobra.Command{
		Use:   "runtime --listen unix://PATH",
		Short: "Run the embedded container runtime alone, without the agent",
		Long: "Serve the CRI of the embedded runtime on a socket, for crictl or another agent. Do not run it on the root\n" +
			"of a running agent. SIGTERM and SIGINT end it; containers run on.",
		Example: "  berth runtime --listen unix:///run/berth/cri.sock",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := l.logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return a.serveRuntime(cmd, listen, log)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "", "where to serve the CRI: unix://PATH")
	mark(cmd.MarkFlagRequired("listen"))
	l.add(cmd, slog.LevelInfo)
	return cmd
}

func (a *app) serveRuntime(cmd *cobra.Command, listen string, log *slog.Logger) error {
	root, err := filepath.Abs(a.root)
	if err != nil {
		return err
	}
	listener, err := runtime.Listen(listen)
	if err != nil {
		return err
	}
	ctx, forced, stop := onSignals(cmd.Context(), log)
	defer stop()
	r := runtime.New(runtime.Config{Root: api.RuntimeRoot(root), State: api.RuntimeState(root), Log: log})
	return until(forced, func() error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return r.Run(ctx) })
		group.Go(func() error { return r.Serve(ctx, listener) })
		return group.Wait()
	})
}
