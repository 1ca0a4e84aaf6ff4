package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/internal/client"
)

// agentProcess is an agent that can run in this process.
type agentProcess interface {
	// Run works until ctx ends and then detaches: containers run on.
	Run(ctx context.Context) error
	// Ready is closed when the agent's socket is open.
	Ready() <-chan struct{}
}

// agentOptions are what the command line says of an agent.
type agentOptions struct {
	configFile string
	configDir  string
	root       string
	socket     string
	criListen  string
	log        *slog.Logger
}

// logFlagSet chooses how the process logs.
type logFlagSet struct {
	format string
	level  slog.Level
}

func (l *logFlagSet) add(cmd *cobra.Command, level slog.Level) {
	l.level = level
	cmd.Flags().StringVar(&l.format, "log-format", "text", "format of the log on standard error: text, json")
	cmd.Flags().TextVar(&l.level, "log-level", level, "least level that is logged: debug, info, warn, error")
	mark(cmd.RegisterFlagCompletionFunc("log-format", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp)))
	mark(cmd.RegisterFlagCompletionFunc("log-level", cobra.FixedCompletions([]string{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp)))
}

func (l *logFlagSet) logger(w io.Writer) (*slog.Logger, error) {
	opts := &slog.HandlerOptions{Level: l.level}
	switch l.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return nil, client.Next(fmt.Errorf("--log-format %q is unknown", l.format), "want text or json")
}

// configFlags are the flags of a command that makes an agent.
func (o *agentOptions) addConfig(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.configFile, "config", "", "KubeletConfiguration file")
	cmd.Flags().StringVar(&o.configDir, "config-dir", "", "directory of .conf files that are merged over --config, in order of their names")
	mark(cmd.MarkFlagFilename("config", "yaml", "yml", "json"))
	mark(cmd.MarkFlagDirname("config-dir"))
}

func (a *app) agentCommand() *cobra.Command {
	var (
		o     agentOptions
		l     logFlagSet
		steps bool
	)
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent: the daemon that runs the pods of this machine",
		Long: "Run the agent in the foreground, as a service manager wants it. SIGTERM and SIGINT detach it: the pods'\n" +
			"containers run on, and the next agent on the same root takes them over. A second signal ends it at once.",
		Example: "  berth agent --config /etc/berth/config.yaml",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if steps {
				return printSteps(cmd.OutOrStdout())
			}
			var err error
			if o.log, err = l.logger(cmd.ErrOrStderr()); err != nil {
				return err
			}
			o.root, o.socket = a.root, a.socketPath()
			return runAgent(cmd.Context(), o)
		},
	}
	o.addConfig(cmd)
	l.add(cmd, slog.LevelInfo)
	cmd.Flags().StringVar(&o.criListen, "cri-listen", "", "serve the embedded runtime's CRI here too, for crictl: unix://PATH")
	cmd.Flags().BoolVar(&steps, "print-steps", false, "print the steps of a pod's life and exit")
	return cmd
}

// errForced ends the process at a second signal.
var errForced = errors.New("ended at once by a second signal")

// runAgent is the daemon's life.
func runAgent(ctx context.Context, o agentOptions) error {
	agent, err := newAgent(o)
	if err != nil {
		return err
	}
	ctx, forced, stop := onSignals(ctx, o.log)
	defer stop()
	return until(forced, func() error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return agent.Run(ctx) })
		group.Go(func() error {
			select {
			case <-agent.Ready():
				return notify(ctx, client.New(o.socket), o.log)
			case <-ctx.Done():
				return nil
			}
		})
		return group.Wait()
	})
}

// onSignals returns a context that ends at the first SIGTERM or SIGINT, and a
// channel that is closed at the second.
func onSignals(parent context.Context, log *slog.Logger) (context.Context, <-chan struct{}, func()) {
	ctx, cancel := context.WithCancel(parent)
	forced := make(chan struct{})
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	done := make(chan struct{})
	go func() {
		for n := 0; ; n++ {
			select {
			case sig := <-signals:
				if n > 0 {
					close(forced)
					return
				}
				log.Info("ending; a second signal ends it at once", "signal", sig.String())
				cancel()
			case <-done:
				return
			}
		}
	}()
	return ctx, forced, func() { signal.Stop(signals); close(done); cancel() }
}

// until returns what work returns, or errForced as soon as forced is closed:
// the process then ends with work under way.
func until(forced <-chan struct{}, work func() error) error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	select {
	case err := <-done:
		return err
	case <-forced:
		return errForced
	}
}

// notify tells systemd (sd_notify(3)) that the agent is ready, that it is alive
// as long as its local API says so, and that it stops.
func notify(ctx context.Context, c *client.Client, log *slog.Logger) error {
	send := func(state string) {
		if _, err := daemon.SdNotify(false, state); err != nil {
			log.Warn("cannot notify systemd", "state", state, "err", err)
		}
	}
	send(daemon.SdNotifyReady)
	defer send(daemon.SdNotifyStopping)
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("no watchdog", "err", err)
	}
	if err != nil || interval == 0 {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(interval / 2)
	defer tick.Stop()
	for {
		if err := healthy(ctx, c, interval/2); err == nil {
			send(daemon.SdNotifyWatchdog)
		} else if ctx.Err() == nil {
			log.Error("unhealthy: systemd will restart this agent if it stays so", "err", err, "watchdog", interval)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func healthy(ctx context.Context, c *client.Client, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return c.Healthy(ctx)
}
