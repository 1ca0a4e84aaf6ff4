package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/cli/agentflag"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/follow"
	"github.com/berth-run/berth/internal/cli/printer"
	"github.com/berth-run/berth/internal/cli/terminal"
	"github.com/berth-run/berth/internal/cli/transfer"
	"github.com/berth-run/berth/internal/config"
)

// exitAbandoned is the exit status after three interrupts: the one that shells use for SIGINT.
const exitAbandoned = 130

type runFlags struct {
	command.Scope
	agent   config.Flags
	log     logFlagSet
	detach  bool
	noLogs  bool
	timeout time.Duration
	ready   bool
	images  []string
}

func runCommand(a *app) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run FILE|- ...",
		Short: "Run pods in the foreground and show their progress and logs",
		Long: `Run the pods in manifests (JSON or YAML). Show what they wait for, how long each step of their start
took, and their logs.

If no agent runs for this --root-dir, the command runs one itself until it ends. Otherwise it passes the
pods to the running agent and follows them. The pods end with the command, also if it is killed. An
interrupt (Ctrl-C) stops them within their grace period, a second one kills them, and a third one leaves
without waiting. With --detach, the pods stay with the running agent, as after "berth apply".

The exit status is 0 if every container exited with 0. If exactly one container failed, it is the exit
code of that container. In all other cases it is 1: several containers failed, a pod was rejected, or a
pod was not ready within --timeout.

With --exit-when-ready, only pods that ended before all were ready count. The command ends with the reason
when a pod cannot become ready without a change: its image has no valid name (InvalidImageName), is not on
this node and may not be pulled (ErrImageNeverPull), or the first try to pull it has failed
(ImagePullBackOff).`,
		Example: "  berth run --image-archive web.tar web.yaml",
		Args:    command.Usage(cobra.MinimumNArgs(1)),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.run(cmd, &f, args) },
	}
	f.Add(cmd)
	agentflag.Config(cmd, &f.agent)
	agentflag.Manifests(cmd, &f.agent.Absent.Manifests)
	f.log.add(cmd, slog.LevelWarn)
	flags := cmd.Flags()
	flags.BoolVarP(&f.detach, "detach", "d", false, "leave the pods to the running agent and return")
	flags.BoolVar(&f.noLogs, "no-logs", false, "do not show the containers' logs")
	flags.DurationVar(&f.timeout, "timeout", 0,
		"stop the pods if one is not ready, or done, within this `duration`; 0: no limit")
	flags.BoolVar(&f.ready, "exit-when-ready", false, "stop the pods when all have been ready, or one cannot be")
	flags.StringArrayVar(&f.images, "image-archive", nil, "image archive `file` to load first; may be repeated")
	for _, foreground := range []string{"timeout", "no-logs", "exit-when-ready"} {
		cmd.MarkFlagsMutuallyExclusive("detach", foreground)
	}
	command.Mark(cmd.MarkFlagFilename("image-archive", "tar"))
	return cmd
}

func (a *app) run(cmd *cobra.Command, f *runFlags, files []string) error {
	manifests, err := command.ReadManifests(cmd, files)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	interrupts := make(chan os.Signal, 3)
	signal.Notify(interrupts, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(interrupts)

	leave, err := a.findAgent(ctx, cancel, cmd.ErrOrStderr(), f, interrupts)
	if err != nil {
		return err
	}
	err = a.runPods(ctx, cmd, f, manifests, interrupts)
	if errors.Is(err, follow.ErrAbandoned) {
		return abandoned(err)
	}
	if left := leave(); left != nil {
		err = errors.Join(err, left)
	}
	return err
}

// abandoned returns the error of a run that the user left before its end.
func abandoned(err error) error {
	return &command.ExitError{Code: exitAbandoned,
		Err: client.Next(err, "wait: the agent still ends these pods, or the next one on this root does")}
}

// findAgent finds the running agent, or starts one in this process. leave ends the started one.
func (a *app) findAgent(ctx context.Context, cancel context.CancelCauseFunc, stderr io.Writer, f *runFlags,
	interrupts <-chan os.Signal) (leave func() error, err error) {
	c := a.Client()
	_, err = c.Status(ctx)
	switch {
	case err == nil:
		if flag := configFlag(&f.agent); flag != "" {
			return nil, client.Next(fmt.Errorf("%s configures a new agent, but one already runs at %s",
				flag, c.Socket()),
				"leave it out, or choose another --root-dir")
		}
		return func() error { return nil }, nil
	case !errors.Is(err, client.ErrNoAgent):
		return nil, err
	case f.detach:
		return nil,
			client.Next(fmt.Errorf("--detach needs a running agent: %w", err),
				`start one with "berth agent", or leave out --detach`)
	}
	if err := needRoot(); err != nil {
		return nil, err
	}
	log, err := f.log.logger(stderr)
	if err != nil {
		return nil, err
	}
	ready := make(chan struct{})
	agent, err := makeAgent(a.flags(f.agent), ready, log)
	if err != nil {
		return nil, err
	}
	return embed(ctx, cancel, embedded{agent, ready}, interrupts)
}

// configFlag returns the given flag that only a new agent could use, or "".
func configFlag(f *config.Flags) string {
	switch {
	case f.ConfigFile != "":
		return "--config"
	case f.ConfigDir != "":
		return "--config-dir"
	case f.Absent.Manifests.Missing != "":
		return "--missing-manifests"
	case f.Absent.Manifests.Static != "":
		return "--static-pods"
	case f.Absent.Manifests.ClaimRetention != nil:
		return "--claim-retention"
	}
	return ""
}

// embedded is an agent that runs in the process of a command.
type embedded struct {
	agent interface {
		// Run runs the agent until ctx ends. Containers keep running after that.
		Run(ctx context.Context) error
	}
	ready <-chan struct{} // closed when the agent's socket is open
}

// embed runs the agent in this process and returns when its socket is open. If the agent fails later, embed
// calls cancel with the cause.
func embed(ctx context.Context, cancel context.CancelCauseFunc, e embedded,
	interrupts <-chan os.Signal) (leave func() error, err error) {
	agentCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() {
		err := e.agent.Run(agentCtx)
		if agentCtx.Err() == nil { // it ended by itself
			if err == nil {
				err = errors.New("it stopped without an error")
			}
			if client.NextStep(err) == "" && !errors.Is(err, lock.ErrLocked) {
				err = client.Next(err, "see the agent's log above, and check this machine with \"berth doctor\"")
			}
			cancel(fmt.Errorf("the agent of this command ended: %w", err))
			err = nil
		}
		ended <- err
	}()
	leave = func() error { stop(); return <-ended }
	select {
	case <-e.ready:
		return leave, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case sig := <-interrupts:
		err = &command.ExitError{Code: exitAbandoned, Err: client.Next(
			fmt.Errorf("%s while the agent was starting", sig), "run the command again: no pod was started")}
	}
	return nil, errors.Join(err, leave())
}

// runPods applies the pods and follows them until they end. With --detach it returns after the apply.
func (a *app) runPods(ctx context.Context, cmd *cobra.Command, f *runFlags, manifests []command.Manifest,
	interrupts <-chan os.Signal) error {
	c := a.Client()
	for _, archive := range f.images {
		images, err := transfer.Agent{Client: c, Err: cmd.ErrOrStderr()}.Load(ctx, archive, cmd.InOrStdin())
		if err != nil {
			return fmt.Errorf("load image: %w", err)
		}
		if err := printer.ImageNames("loaded")(cmd.OutOrStdout(), api.ImageList{Items: images}); err != nil {
			return err
		}
	}
	opts := client.Apply{Namespace: f.Explicit(cmd)}
	if !f.detach {
		lease, err := c.Hold(ctx)
		if err != nil {
			return err
		}
		defer lease.Close()
		opts.Lease = lease.ID
	}
	var pods []api.ApplyResult
	for _, m := range manifests {
		opts.Origin = m.Origin
		results, err := c.Apply(ctx, m.Data, opts)
		if err != nil {
			return err
		}
		pods = append(pods, results...)
	}
	if f.detach {
		return printResults(cmd, pods, "", false)
	}
	if pods = slices.DeleteFunc(pods, func(r api.ApplyResult) bool { return !r.IsPod() }); len(pods) == 0 {
		return client.Next(errors.New("the manifests have no pod to run"), `objects alone are kept with "berth apply"`)
	}
	screen := terminal.Of(cmd.ErrOrStderr())
	status, err := follow.Run(ctx, follow.Options{
		Client: c, Pods: pods, Logs: !f.noLogs, Timeout: f.timeout, UntilReady: f.ready, Interrupts: interrupts,
		Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(), Width: screen.Columns(),
		Color: screen.Color, Now: time.Now,
	})
	if err != nil {
		return err
	}
	if status != 0 {
		return &command.ExitError{Code: status}
	}
	return nil
}
