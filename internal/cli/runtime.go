package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/base/sysmon"
	"github.com/berth-run/berth/internal/cli/agentflag"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/process"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/runtime"
)

func runtimeCommand(a *app) *cobra.Command {
	var (
		f      config.Flags
		listen string
		load   []string
		l      logFlagSet
	)
	cmd := &cobra.Command{
		Use:   "runtime --listen unix://PATH",
		Short: "Run the embedded container runtime alone, without the agent",
		Long: "Serve the CRI of the embedded runtime on a socket, for crictl or another agent. No agent and no\n" +
			"reset can work on its --root-dir meanwhile. SIGTERM and SIGINT end the runtime. Its containers\n" +
			"keep running.",
		Example: "  berth runtime --listen unix:///run/berth/cri.sock",
		Args:    command.Usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := l.logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := needRoot(); err != nil {
				return err
			}
			return serveRuntime(cmd, a.flags(f), listen, load, log)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "", "socket to serve the CRI on: `unix://PATH`")
	command.Mark(cmd.MarkFlagRequired("listen"))
	cmd.Flags().StringArrayVar(&load, "image-archive", nil, "image archive `file` to load first; may be repeated")
	command.Mark(cmd.MarkFlagFilename("image-archive"))
	agentflag.Config(cmd, &f)
	agentflag.RunDir(cmd, &f, lastRunDir)
	l.add(cmd, slog.LevelInfo)
	return cmd
}

func serveRuntime(cmd *cobra.Command, f config.Flags, listen string, load []string, log *slog.Logger) (err error) {
	_ = sysmon.Relax() // it only saves CPU time
	ctx, forced, stop := process.OnSignals(cmd.Context(), log)
	defer stop()
	r, unlock, err := standaloneRuntime(ctx, f, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	listener, err := runtime.Listen(listen)
	if err != nil {
		return err
	}
	return process.Until(forced, func() error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return r.Run(ctx) })
		group.Go(func() error {
			for _, path := range load {
				if err := importInto(ctx, r, path); err != nil {
					return errors.Join(err, listener.Close())
				}
			}
			return r.Serve(ctx, listener)
		})
		return group.Wait()
	})
}

// importInto loads an image archive once the runtime is ready.
func importInto(ctx context.Context, r *runtime.Runtime, path string) error {
	archive, err := os.Open(path)
	if err != nil {
		return client.Next(fmt.Errorf("load image: %w", err), "give --image-archive the path of a tar file")
	}
	defer archive.Close()
	if _, err = r.Import(ctx, archive); err != nil {
		return client.Next(fmt.Errorf("load image %s: %w", path, err),
			"give --image-archive an archive of docker save, or of \"berth image save\"")
	}
	return nil
}
