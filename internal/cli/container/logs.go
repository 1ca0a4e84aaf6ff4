package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/follow"
	"github.com/berth-run/berth/internal/cli/stream"
	"github.com/berth-run/berth/internal/model/pod"
)

type logFlags struct {
	command.Scope
	container  string
	all        bool
	prefix     bool
	follow     bool
	previous   bool
	timestamps bool
	tail       int64
	limit      int64
	since      time.Duration
	sinceTime  string
}

func logsCommand(a *command.App) *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use:     "logs POD [-c CONTAINER]",
		Short:   "Show the log of a container, or follow it with -f",
		Example: "  berth logs web -f --tail 20",
		Args:    command.Usage(cobra.ExactArgs(1)),
		RunE:    func(cmd *cobra.Command, args []string) error { return logs(a, cmd, &f, args[0]) },
	}
	f.Add(cmd)
	flags := cmd.Flags()
	containerFlag(cmd, &f.container)
	flags.BoolVar(&f.all, "all-containers", false, "show all containers of the pod, init containers first")
	flags.BoolVar(&f.prefix, "prefix", false, "begin each line with its pod and container")
	flags.BoolVarP(&f.follow, "follow", "f", false, "keep showing new lines until the container ends")
	flags.BoolVarP(&f.previous, "previous", "p", false, "show the instance before the last restart")
	flags.BoolVar(&f.timestamps, "timestamps", false, "begin each line with the time when it was written")
	flags.Int64Var(&f.tail, "tail", -1, "number of `lines` to show from the end; -1: all")
	flags.Int64Var(&f.limit, "limit-bytes", 0, "show at most this number of `bytes`; 0: all")
	flags.DurationVar(&f.since, "since", 0, "only lines of the last `duration`, such as 5s or 10m")
	flags.StringVar(&f.sinceTime, "since-time", "", "only lines since this `time` (RFC 3339)")
	cmd.MarkFlagsMutuallyExclusive("container", "all-containers")
	cmd.MarkFlagsMutuallyExclusive("since", "since-time")
	cmd.ValidArgsFunction = a.CompletePod(&f.Scope)
	command.Mark(cmd.RegisterFlagCompletionFunc("container", a.CompleteContainer(&f.Scope)))
	return cmd
}

// options returns the log options of the flags, without a container.
func (f *logFlags) options() (client.LogOptions, error) {
	o := client.LogOptions{PodLogOptions: corev1.PodLogOptions{Follow: f.follow, Previous: f.previous,
		Timestamps: f.timestamps}}
	if f.tail >= 0 {
		o.TailLines = &f.tail
	}
	if f.limit > 0 {
		o.LimitBytes = &f.limit
	}
	if f.since > 0 {
		seconds := int64((f.since + time.Second - 1) / time.Second)
		o.SinceSeconds = &seconds
	}
	if f.sinceTime != "" {
		t, err := time.Parse(time.RFC3339Nano, f.sinceTime)
		if err != nil {
			return o, client.Next(fmt.Errorf("--since-time %q is not a time", f.sinceTime),
				"write it like 2006-01-02T15:04:05Z")
		}
		o.SinceTime = &metav1.Time{Time: t}
	}
	return o, nil
}

func logs(a *command.App, cmd *cobra.Command, f *logFlags, arg string) error {
	key, err := f.Pod(arg)
	if err != nil {
		return err
	}
	opts, err := f.options()
	if err != nil {
		return err
	}
	c := a.RootClient()
	if f.follow {
		c = a.Client() // only an agent has more to come
	}
	p, err := c.Pod(key).Get(cmd.Context())
	if err != nil {
		return err
	}
	lines := follow.NewLines(cmd.OutOrStdout())
	if !f.all {
		if opts.Container = f.container; opts.Container == "" {
			opts.Container = stream.DefaultContainer(cmd.ErrOrStderr(), p)
		}
		return copyLog(cmd.Context(), c, key, opts, f.writer(lines, p, opts.Container))
	}
	if !f.follow {
		return eachLog(cmd.Context(), c, p, f, opts, lines)
	}
	group, ctx := errgroup.WithContext(cmd.Context())
	for _, container := range pod.Containers(p) {
		opts := opts
		opts.Container = container.Name
		group.Go(func() error { return copyLog(ctx, c, key, opts, f.writer(lines, p, opts.Container)) })
	}
	return group.Wait()
}

// eachLog shows the logs of the containers one after the other. It continues after a container without a
// log.
func eachLog(ctx context.Context, c *client.Client, p *corev1.Pod, f *logFlags, opts client.LogOptions,
	lines *follow.Lines) error {
	var errs []error
	for _, container := range pod.Containers(p) {
		opts.Container = container.Name
		key := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
		errs = append(errs, copyLog(ctx, c, key, opts, f.writer(lines, p, container.Name)))
	}
	return errors.Join(errs...)
}

type writeCloser interface {
	io.Writer
	io.Closer
}

func (f *logFlags) writer(lines *follow.Lines, p *corev1.Pod, container string) writeCloser {
	if f.prefix {
		return lines.Prefixed(fmt.Sprintf("[pod/%s/%s] ", p.Name, container))
	}
	return lines.Prefixed("")
}

func copyLog(ctx context.Context, c *client.Client, key types.NamespacedName, opts client.LogOptions,
	w writeCloser) error {
	return errors.Join(c.Pod(key).Logs(ctx, opts, w), w.Close())
}
