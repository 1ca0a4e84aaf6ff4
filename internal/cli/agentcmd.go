package cli

import (
	"context"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/internal/agent/engine/kind"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/base/sysmon"
	"github.com/berth-run/berth/internal/cli/agentflag"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/doctor"
	"github.com/berth-run/berth/internal/cli/process"
	"github.com/berth-run/berth/internal/config"
)

// logFlagSet holds the flags for the log of a process.
type logFlagSet struct {
	format string
	level  slog.Level
}

func (l *logFlagSet) add(cmd *cobra.Command, level slog.Level) {
	l.level = level
	cmd.Flags().StringVar(&l.format, "log-format", "text", "`format` of the log on standard error: text or json")
	cmd.Flags().TextVar(&l.level, "log-level", level, "lowest `level` that is logged: debug, info, warn or error")
	command.Mark(cmd.RegisterFlagCompletionFunc("log-format",
		cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp)))
	command.Mark(cmd.RegisterFlagCompletionFunc("log-level",
		cobra.FixedCompletions([]string{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp)))
}

func (l *logFlagSet) logger(w io.Writer) (*slog.Logger, error) {
	log, err := process.Logger(w, l.format, l.level)
	if err != nil {
		return nil, client.Next(err, "use text or json")
	}
	return log, nil
}

// flags adds the root directory and socket of the command line to an agent's flags.
func (a *app) flags(f config.Flags) config.Flags {
	f.RootDir, f.Socket = a.Root, a.SocketPath()
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
		Long: "Run the agent in the foreground, for example under systemd. SIGTERM and SIGINT stop only the agent:\n" +
			"the pods' containers keep running, and the next agent with the same --root-dir takes them over. A\n" +
			"second signal ends the agent without waiting.",
		Example: "  berth agent --config /etc/berth/config.yaml\n" +
			"  berth agent --config /var/lib/kubelet/config.yaml --kubeconfig /etc/kubernetes/kubelet.conf",
		Args: command.Usage(cobra.NoArgs),
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

// runAgent runs the agent as a daemon until a signal ends it.
func runAgent(ctx context.Context, f config.Flags, log *slog.Logger) error {
	_ = sysmon.Relax() // it only saves CPU time
	ready := make(chan struct{})
	agent, err := makeAgent(f, ready, log)
	if err != nil {
		return err
	}
	ctx, forced, stop := process.OnSignals(ctx, log)
	defer stop()
	return process.Until(forced, func() error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return agent.Run(ctx) })
		group.Go(func() error { doctor.Log(ctx, agent.Config, kind.All{}, log); return nil })
		group.Go(func() error {
			select {
			case <-ready:
				return process.Notify(ctx, client.New(f.Socket), log)
			case <-ctx.Done():
				return nil
			}
		})
		return group.Wait()
	})
}
