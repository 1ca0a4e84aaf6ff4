package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/internal/client"
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

// addConfig adds the flags of a command that makes an agent to set f.
func addConfig(cmd *cobra.Command, f *config.Flags) {
	cmd.Flags().StringVar(&f.ConfigFile, "config", "", "KubeletConfiguration `file`")
	cmd.Flags().StringVar(&f.ConfigDir, "config-dir", "", "`directory` of .conf files that are merged over --config, in order of their names")
	mark(cmd.MarkFlagFilename("config", "yaml", "yml", "json"))
	mark(cmd.MarkFlagDirname("config-dir"))
}

// addNode adds the flags of the daemon alone.
func addNode(cmd *cobra.Command, f *config.Flags) {
	flags := cmd.Flags()
	flags.StringVar(&f.RunDir, "run-dir", "", "`directory` of sockets and mounts (default /run/berth, or run in another --root-dir)")
	flags.StringVar(&f.HostnameOverride, "hostname-override", "", "the node's `name`; default: the host's")
	flags.TextVar((*addresses)(&f.NodeIPs), "node-ip", addresses(nil), "the node's `address`, or two of different families, with a comma between")
	flags.StringToStringVar(&f.NodeLabels, "node-labels", nil, "`labels` of the node: key=value, with commas between")
	flags.StringVar(&f.CRIListen, "cri-listen", "", "serve the embedded runtime's CRI here too, for crictl: `unix://PATH`")
	flags.StringVar(&f.ImageCredentialProviderConfig, "image-credential-provider-config", "", "CredentialProviderConfig `file`, or a directory of them: plugins that know the credentials of registries")
	flags.StringVar(&f.ImageCredentialProviderBinDir, "image-credential-provider-bin-dir", "", "`directory` with the plugins' programs")
	mark(cmd.MarkFlagDirname("run-dir"))
	mark(cmd.MarkFlagDirname("image-credential-provider-bin-dir"))
}

// addresses is a flag of IP addresses.
type addresses []netip.Addr

// MarshalText is what the flag is set to.
func (a addresses) MarshalText() ([]byte, error) {
	var all []string
	for _, ip := range a {
		all = append(all, ip.String())
	}
	return []byte(strings.Join(all, ",")), nil
}

// UnmarshalText sets the flag.
func (a *addresses) UnmarshalText(text []byte) error {
	*a = nil
	for one := range strings.SplitSeq(string(text), ",") {
		ip, err := netip.ParseAddr(strings.TrimSpace(one))
		if err != nil {
			return err
		}
		*a = append(*a, ip)
	}
	return nil
}

// flags are the settings of an agent on the root of the command line.
func (a *app) flags(f config.Flags) config.Flags {
	f.RootDir, f.Socket = a.root, a.socketPath()
	return f
}

func agentCommand(a *app) *cobra.Command {
	var (
		f     config.Flags
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
			log, err := l.logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := needRoot(); err != nil {
				return err
			}
			return runAgent(cmd.Context(), a.flags(f), log)
		},
	}
	addConfig(cmd, &f)
	addNode(cmd, &f)
	l.add(cmd, slog.LevelInfo)
	cmd.Flags().BoolVar(&steps, "print-steps", false, "print the steps of a pod's life and exit")
	return cmd
}

// errForced ends the process at a second signal.
var errForced = errors.New("ended at once by a second signal")

// runAgent is the daemon's life.
func runAgent(ctx context.Context, f config.Flags, log *slog.Logger) error {
	agent, err := newAgent(f, log)
	if err != nil {
		return err
	}
	ctx, forced, stop := onSignals(ctx, log)
	defer stop()
	return until(forced, func() error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return agent.Run(ctx) })
		group.Go(func() error {
			select {
			case <-agent.Ready():
				return notify(ctx, client.New(f.Socket), log)
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
