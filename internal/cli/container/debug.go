package container

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/follow"
	"github.com/berth-run/berth/internal/cli/stream"
)

type debugFlags struct {
	command.Scope
	stream.Flags
	image  string
	policy string
	target string
	name   string
}

func debugCommand(a *command.App) *cobra.Command {
	var f debugFlags
	cmd := &cobra.Command{
		Use:   "debug POD --image IMAGE [--target CONTAINER] [-- COMMAND ARG...]",
		Short: "Run a debug container in a running pod",
		Long: `Add an ephemeral container to a pod, wait until it runs, and show its log until it ends. With -i, attach
to it instead. The container shares the pod's network. With --target, it sees the processes of that
container.

The container starts once and is never restarted. It stays in the pod until the pod ends, also across a
restart of the agent, and keeps running when this command is interrupted.

The exit status is the container's exit code.`,
		Example: "  berth debug web --image tools:1 --target app -- ps aux",
		Args:    command.Usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); len(args) > 1 && at != 1 {
				return client.Next(fmt.Errorf("unexpected argument %q", args[1]), "write the command after --")
			}
			return debug(a, cmd, &f, args[0], args[1:])
		},
	}
	f.Scope.Add(cmd)
	f.Flags.Add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.image, "image", "", "`image` of the container")
	flags.StringVar(&f.policy, "image-pull-policy", "",
		"`policy`: Always, IfNotPresent or Never (default: as for other containers)")
	flags.StringVar(&f.target, "target", "", "`container` whose processes the new one sees")
	flags.StringVarP(&f.name, "container", "c", "", "`name` of the new container (default debugger-XXXXX)")
	command.Mark(cmd.MarkFlagRequired("image"))
	cmd.ValidArgsFunction = a.CompletePod(&f.Scope)
	command.Mark(cmd.RegisterFlagCompletionFunc("image", a.CompleteImage(false)))
	command.Mark(cmd.RegisterFlagCompletionFunc("target", a.CompleteContainer(&f.Scope)))
	return cmd
}

func debug(a *command.App, cmd *cobra.Command, f *debugFlags, arg string, command []string) error {
	key, err := f.Pod(arg)
	if err != nil {
		return err
	}
	e := corev1.EphemeralContainer{TargetContainerName: f.target,
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: f.name, Image: f.image, ImagePullPolicy: corev1.PullPolicy(f.policy), Command: command,
			Stdin: f.Stdin, StdinOnce: f.Stdin, TTY: f.TTY,
		}}
	if e.Name == "" {
		e.Name = "debugger-" + strings.ToLower(rand.Text()[:5])
	}
	c := a.Client()
	p, err := c.Pod(key).AddEphemeral(cmd.Context(), e)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "container %s added to pod %s\n", e.Name, key.Name)
	if f.Stdin {
		return debugAttached(cmd, c, p, e.Name, f.Flags)
	}
	return debugLog(cmd, c, p, e.Name)
}

func runs(s corev1.ContainerState) bool { return s.Running != nil || s.Terminated != nil }

func ended(s corev1.ContainerState) bool { return s.Terminated != nil }

// debugAttached waits until the container runs, attaches to it, and returns its exit code as an exitError.
func debugAttached(cmd *cobra.Command, c *client.Client, p *corev1.Pod, name string, f stream.Flags) error {
	if _, err := follow.Ephemeral(cmd.Context(), c, p, name, cmd.ErrOrStderr(), runs); err != nil {
		return err
	}
	key := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	if err := attachTo(cmd, c.Pod(key).Container(name), false, f); err != nil {
		return err
	}
	return debugExit(cmd.Context(), c, p, name)
}

func debugExit(ctx context.Context, c *client.Client, p *corev1.Pod, name string) error {
	s, err := follow.Ephemeral(ctx, c, p, name, io.Discard, ended)
	if err != nil {
		return err
	}
	if code := s.Terminated.ExitCode; code != 0 {
		return &command.ExitError{Code: int(code)}
	}
	return nil
}

// debugLog waits until the container has started, shows its log, and returns its exit code as an exitError.
func debugLog(cmd *cobra.Command, c *client.Client, p *corev1.Pod, name string) error {
	ctx, key := cmd.Context(), types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	if _, err := follow.Ephemeral(ctx, c, p, name, cmd.ErrOrStderr(), runs); err != nil {
		return err
	}
	opts := client.LogOptions{PodLogOptions: corev1.PodLogOptions{Container: name, Follow: true}}
	if err := copyLog(ctx, c, key, opts, follow.NewLines(cmd.OutOrStdout()).Prefixed("")); err != nil {
		return err
	}
	return debugExit(ctx, c, p, name)
}
