package cli

import (
	"context"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/agentflag"
	"github.com/berth-run/berth/internal/cli/process"
	"github.com/berth-run/berth/internal/config"
)

// agentProcess is an agent that can run in this process.
type agentProcess interface {
	// Run works until ctx ends and then detaches: containers run on.
	Run(ctx context.Context) error
	// Ready is closed when the agent's socket is open.
	Ready() <-chan struct{}
}

// logFlagSet chooses how the process logs.
type logFlagSet struct {
	format string
	level  slog.Level
}

func (l *logFlagSet) add(cmd *cobra.Command, level slog.Level) {
	l.level = level
	cmd.Flags().StringVar(&l.format, "log-format", "text", "`format` of the log on standard error: text, json")
	cmd.Flags().TextVar(&l.level, "log-level", level, "least `level` that is logged: debug, info, warn, error")
	mark(cmd.RegisterFlagCompletionFunc("log-format",
		cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp)))
	mark(cmd.RegisterFlagCompletionFunc("log-level",
		cobra.FixedCompletions([]string{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp)))
}

func (l *logFlagSet) logger(w io.Writer) (*slog.Logger, error) {
	log, err := process.Logger(w, l.format, l.level)
	if err != nil {
		return nil, client.Next(err, "want text or json")
	}
	return log, nil
}

// flags are the settings of an agent on the root of the command line.
func (a *app) flags(f config.Flags) config.Flags {
	f.RootDir, f.Socket = a.root, a.socketPath()
	return f
}

func agentCommand(a *app) *cobra.Command {
	var (
		f             config.Flags
		l             logFlagSet
		steps, stages bool
	)
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent: the daemon that runs the pods of this machine",
		Long: "Run the agent in the foreground, as a service manager wants it. SIGTERM and SIGINT detach it: " +
			"the pods'\n" +
			"containers run on, and the next agent on the same root takes them over. A second signal ends it at once.",
		Example: "  berth agent --config /etc/berth/config.yaml\n" +
			"  berth agent --config /var/lib/kubelet/config.yaml --kubeconfig /etc/kubernetes/kubelet.conf",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if steps {
				return printSteps(cmd.OutOrStdout())
			}
			if stages {
				return printStages(cmd.OutOrStdout())
			}
			log, err := l.logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := needRoot(); err != nil {
				return err
			}
			f.CommandLine = agentflag.Values(cmd.Flags())
			return runAgent(cmd.Context(), a.flags(f), log)
		},
	}
	agentflag.Config(cmd, &f)
	agentflag.Node(cmd, &f)
	l.add(cmd, slog.LevelInfo)
	cmd.Flags().BoolVar(&steps, "print-steps", false, "print the steps of a pod's life and exit")
	cmd.Flags().BoolVar(&stages, "print-admission", false, "print the stages of a pod's admission and exit")
	return cmd
}

// runAgent is the daemon's life.
func runAgent(ctx context.Context, f config.Flags, log *slog.Logger) error {
	agent, err := newAgent(f, log)
	if err != nil {
		return err
	}
	ctx, forced, stop := process.OnSignals(ctx, log)
	defer stop()
	return process.Until(forced, func() error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return agent.Run(ctx) })
		group.Go(func() error {
			select {
			case <-agent.Ready():
				return process.Notify(ctx, client.New(f.Socket), log)
			case <-ctx.Done():
				return nil
			}
		})
		return group.Wait()
	})
}
