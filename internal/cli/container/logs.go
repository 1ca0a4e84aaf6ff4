package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/follow"
	"github.com/berth-run/berth/internal/cli/stream"
	"github.com/berth-run/berth/internal/cli/terminal"
	"github.com/berth-run/berth/internal/model/pod"
)

type logFlags struct {
	command.Scope
	container  string
	selector   string
	all        bool
	prefix     bool
	follow     bool
	previous   bool
	timestamps bool
	tail       int64
	limit      int64
	since      time.Duration
	sinceTime  string
	most       int
}

func logsCommand(a *command.App) *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use:   "logs POD|-l SELECTOR [-c CONTAINER]",
		Short: "Show the logs of containers, or follow them with -f",
		Long: `Show the log of a container of a pod, or of all its containers. With -l, show the logs of all pods that
the selector selects, each line with its pod and container; on a terminal each of them has a color.
Lines of different containers are not in the order of time.

With -f, keep showing new lines until the containers end. With -l and -f, also follow pods and restarted
containers that come later, from their first line, until all selected pods have ended by themselves. Deleted
pods do not end the command, because others may replace them.`,
		Example: "  berth logs web -f --tail 20\n  berth logs -l app=web -f --all-containers",
		Args:    command.Usage(cobra.MaximumNArgs(1)),
		RunE:    func(cmd *cobra.Command, args []string) error { return logs(a, cmd, &f, args) },
	}
	f.Add(cmd)
	flags := cmd.Flags()
	containerFlag(cmd, &f.container)
	flags.StringVarP(&f.selector, "selector", "l", "", "show the pods with these labels: a `selector` such as app=web")
	flags.BoolVar(&f.all, "all-containers", false, "show all containers of a pod, init containers first")
	flags.BoolVar(&f.prefix, "prefix", false, "begin each line with its pod and container (default with -l)")
	flags.BoolVarP(&f.follow, "follow", "f", false, "keep showing new lines until the container ends")
	flags.BoolVarP(&f.previous, "previous", "p", false, "show the instance before the last restart")
	flags.BoolVar(&f.timestamps, "timestamps", false, "begin each line with the time when it was written")
	flags.Int64Var(&f.tail, "tail", -1, "number of `lines` to show from the end; -1: all")
	flags.Int64Var(&f.limit, "limit-bytes", 0, "show at most this number of `bytes`; 0: all")
	flags.DurationVar(&f.since, "since", 0, "only lines of the last `duration`, such as 5s or 10m")
	flags.StringVar(&f.sinceTime, "since-time", "", "only lines since this `time` (RFC 3339)")
	flags.IntVar(&f.most, "max-log-requests", 50, "with -l and -f, follow at most this `number` of logs at a time")
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

func logs(a *command.App, cmd *cobra.Command, f *logFlags, args []string) error {
	if (len(args) == 0) == (f.selector == "") {
		return client.Next(errors.New("expected one pod, or a selector"), "write POD, or -l SELECTOR")
	}
	if f.most < 1 {
		return client.Next(fmt.Errorf("--max-log-requests %d allows no log", f.most), "give 1 or more")
	}
	opts, err := f.options()
	if err != nil {
		return err
	}
	c := a.RootClient()
	if f.follow {
		c = a.Client() // only an agent has more to come
	}
	if f.follow && f.selector != "" && !f.previous {
		return followSelected(cmd, c, f, opts)
	}
	pods, err := f.pods(cmd.Context(), c, args)
	if err != nil {
		return err
	}
	if len(pods) == 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "No pods found with the labels %s in namespace %s\n", f.selector, f.Namespace)
		return nil
	}
	sources := f.sources(cmd, pods)
	screen := newLogScreen(cmd, f)
	out := make([]*follow.Prefixed, len(sources))
	for i, src := range sources {
		out[i] = screen.writer(src)
	}
	show := func(i int) error {
		s, opts := sources[i], opts
		opts.Container = s.container
		key := types.NamespacedName{Namespace: s.pod.Namespace, Name: s.pod.Name}
		return copyLog(cmd.Context(), c, key, opts, out[i])
	}
	return each(cmd, len(sources), f.follow, show)
}

// each calls show for each of the n logs, one after the other or at the same time. If one of several logs cannot be
// shown, each prints the reason at once, and shows the others all the same.
func each(cmd *cobra.Command, n int, together bool, show func(i int) error) error {
	if n == 1 {
		return show(0)
	}
	var (
		mu     sync.Mutex
		failed error
		group  sync.WaitGroup
	)
	one := func(i int) {
		if err := show(i); err != nil {
			mu.Lock()
			defer mu.Unlock()
			command.PrintError(cmd.ErrOrStderr(), cmd, err)
			failed = &command.ExitError{Code: 1}
		}
	}
	for i := range n {
		if together {
			group.Go(func() { one(i) })
		} else {
			one(i)
		}
	}
	group.Wait()
	return failed
}

// source is one log.
type source struct {
	pod       *corev1.Pod
	container string
}

// pods returns the pod that the arguments name, or those that the selector selects.
func (f *logFlags) pods(ctx context.Context, c *client.Client, args []string) ([]corev1.Pod, error) {
	if f.selector != "" {
		list, err := c.Pods(ctx, client.Select{Namespace: f.Namespace, Labels: f.selector})
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	}
	key, err := f.Pod(args[0])
	if err != nil {
		return nil, err
	}
	p, err := c.Pod(key).Get(ctx)
	if err != nil {
		return nil, err
	}
	return []corev1.Pod{*p}, nil
}

// sources returns the logs of the pods that the flags choose: one or all of each pod.
func (f *logFlags) sources(cmd *cobra.Command, pods []corev1.Pod) (all []source) {
	for i := range pods {
		p := &pods[i]
		switch {
		case f.all:
			for _, c := range pod.Containers(p) {
				all = append(all, source{p, c.Name})
			}
		case f.container != "":
			all = append(all, source{p, f.container})
		case f.selector != "": // the prefix says which container it is
			all = append(all, source{p, stream.DefaultContainer(io.Discard, p)})
		default:
			all = append(all, source{p, stream.DefaultContainer(cmd.ErrOrStderr(), p)})
		}
	}
	return all
}

// logScreen shows the lines of several logs together.
type logScreen struct {
	lines           *follow.Lines
	prefixed, color bool
	styles          map[string]terminal.Style // by prefix
}

// newLogScreen returns the screen of a command. The lines of several pods begin with their pod and container unless the
// user decides otherwise.
func newLogScreen(cmd *cobra.Command, f *logFlags) *logScreen {
	s := &logScreen{lines: follow.NewLines(cmd.OutOrStdout()), prefixed: f.selector != "",
		color: terminal.Of(cmd.OutOrStdout()).Color, styles: map[string]terminal.Style{}}
	if cmd.Flags().Changed("prefix") {
		s.prefixed = f.prefix
	}
	return s
}

// writer returns a writer for the lines of a log. The logs of a container, and those of a container with the same name
// in a pod with the same name, have the same color.
func (s *logScreen) writer(from source) *follow.Prefixed {
	if !s.prefixed {
		return s.lines.Prefixed("")
	}
	name := fmt.Sprintf("[pod/%s/%s]", from.pod.Name, from.container)
	if _, known := s.styles[name]; !known {
		s.styles[name] = terminal.Origin(len(s.styles))
	}
	return s.lines.Prefixed(s.styles[name].Paint(s.color, name) + " ")
}

func copyLog(ctx context.Context, c *client.Client, key types.NamespacedName, opts client.LogOptions,
	w *follow.Prefixed) error {
	return errors.Join(c.Pod(key).Logs(ctx, opts, w), w.Close())
}
