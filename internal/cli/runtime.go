package cli

import (
	"log/slog"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/runtime"
)

func runtimeCommand(a *app) *cobra.Command {
	var (
		f      config.Flags
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
			if err := needRoot(); err != nil {
				return err
			}
			return serveRuntime(cmd, a.flags(f), listen, log)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "", "where to serve the CRI: `unix://PATH`")
	mark(cmd.MarkFlagRequired("listen"))
	addConfig(cmd, &f)
	l.add(cmd, slog.LevelInfo)
	return cmd
}

func serveRuntime(cmd *cobra.Command, f config.Flags, listen string, log *slog.Logger) error {
	rc, err := runtimeConfig(f, log)
	if err != nil {
		return err
	}
	listener, err := runtime.Listen(listen)
	if err != nil {
		return err
	}
	ctx, forced, stop := onSignals(cmd.Context(), log)
	defer stop()
	r := runtime.New(rc)
	return until(forced, func() error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return r.Run(ctx) })
		group.Go(func() error { return r.Serve(ctx, listener) })
		return group.Wait()
	})
}
