package cli

import (
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/objects"
	"github.com/berth-run/berth/internal/cli/printer"
)

// listFlags are the flags of commands that list.
type listFlags struct {
	command.Scope
	command.Output
	labels, fields string
	watch          bool
}

func getCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "get pods|events|images|problems|configmaps|secrets|pvc|pv|runtimeclasses",
		Short:   "List pods, events, images, problems or other objects",
		Example: "  berth get pods -A -o wide",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownResource(args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(getPodsCommand(a), getEventsCommand(a), getImagesCommand(a, "images"), getProblemsCommand(a))
	cmd.AddCommand(objects.Commands(a.RootClient)...)
	return cmd
}

func getPodsCommand(a *app) *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:     "pods [NAME]",
		Aliases: []string{"pod", "po"},
		Short:   "List pods, or follow their changes with -w",
		Example: "  berth get pods -w",
		Args:    command.Usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.listPods(cmd, &f)
			}
			return a.getPod(cmd, &f, args[0])
		},
	}
	f.AddAll(cmd)
	f.Output.Add(cmd, "json", "yaml", "wide", "name")
	cmd.Flags().StringVarP(&f.labels, "selector", "l", "", "label `selector`, such as app=web")
	cmd.Flags().StringVar(&f.fields, "field-selector", "", "field `selector`, such as status.phase=Running")
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "keep showing changes")
	cmd.ValidArgsFunction = a.CompletePod(&f.Scope)
	return cmd
}

// podPrinter prints pods in the chosen format.
type podPrinter struct {
	w     io.Writer
	f     *listFlags
	table printer.Pods
}

func newPodPrinter(w io.Writer, f *listFlags) podPrinter {
	return podPrinter{w, f, printer.NewPods(w, printer.Options{Wide: f.Wide(), Namespaces: f.All})}
}

func (pp podPrinter) print(p *corev1.Pod) error {
	switch {
	case pp.f.Structured():
		return pp.f.Object(pp.w, p)
	case pp.f.Format == "name":
		_, err := fmt.Fprintf(pp.w, "pod/%s\n", p.Name)
		return err
	}
	pp.table.Add(p, time.Now())
	return nil
}

func (a *app) getPod(cmd *cobra.Command, f *listFlags, arg string) error {
	key, err := f.Pod(arg)
	if err != nil {
		return err
	}
	if f.All {
		return client.Next(fmt.Errorf("a pod name needs a single namespace"), "leave out -A, or the name")
	}
	if f.watch {
		return a.watchPods(cmd, f, key.Name)
	}
	p, err := a.RootClient().Pod(key).Get(cmd.Context())
	if err != nil {
		return err
	}
	pp := newPodPrinter(cmd.OutOrStdout(), f)
	if err := pp.print(p); err != nil {
		return err
	}
	return pp.table.Flush()
}

func (f *listFlags) selection() client.Select {
	return client.Select{Namespace: f.Selected(), Labels: f.labels, Fields: f.fields}
}

func (a *app) listPods(cmd *cobra.Command, f *listFlags) error {
	if f.watch {
		return a.watchPods(cmd, f, "")
	}
	list, err := a.RootClient().Pods(cmd.Context(), f.selection())
	if err != nil {
		return err
	}
	if f.Structured() {
		return f.Object(cmd.OutOrStdout(), list)
	}
	pp := newPodPrinter(cmd.OutOrStdout(), f)
	for i := range list.Items {
		if err := pp.print(&list.Items[i]); err != nil {
			return err
		}
	}
	if len(list.Items) == 0 {
		nothing(cmd, "pods", f.Selected())
	}
	return pp.table.Flush()
}

// nothing reports an empty list on standard error, so that the message does not end up in a pipe.
func nothing(cmd *cobra.Command, what, namespace string) {
	if namespace == "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "No %s found\n", what)
		return
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "No %s found in namespace %s\n", what, namespace)
}

// watchPods shows every change of the pods. If name is set, it shows only that pod.
func (a *app) watchPods(cmd *cobra.Command, f *listFlags, name string) error {
	pp := newPodPrinter(cmd.OutOrStdout(), f)
	sel := f.selection()
	sel.Name = name
	return show(a.Client().WatchPods(cmd.Context(), sel), pp.print, pp.table.Flush)
}

// show prints the changes of a watch: the existing objects together, then each change on its own.
func show[T any](changes iter.Seq2[client.Change[T], error], one func(*T) error, flush func() error) error {
	listed := false
	for c, err := range changes {
		if err != nil {
			return err
		}
		if c.Synced {
			listed = true
		} else if err := one(c.Object); err != nil {
			return err
		}
		if listed {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

func getEventsCommand(a *app) *cobra.Command {
	cmd := eventsCommand(a)
	cmd.Aliases = []string{"event", "ev"}
	cmd.Example = "  berth get events -w"
	return cmd
}

func getImagesCommand(a *app, use string) *cobra.Command {
	var out command.Output
	cmd := &cobra.Command{
		Use:     use,
		Short:   "List the images of the runtime",
		Example: "  berth image ls -o wide",
		Args:    command.Usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			images, err := a.RootClient().Images().List(cmd.Context())
			if err != nil {
				return err
			}
			if out.Structured() {
				return out.Object(cmd.OutOrStdout(), api.ImageList{TypeMeta: api.Type("ImageList"), Items: images})
			}
			if len(images) == 0 {
				nothing(cmd, "images", "")
			}
			return printer.Images(cmd.OutOrStdout(), images, printer.Options{Wide: out.Wide()})
		},
	}
	out.Add(cmd, "json", "yaml", "wide")
	return cmd
}

func getProblemsCommand(a *app) *cobra.Command {
	var out command.Output
	cmd := &cobra.Command{
		Use:     "problems",
		Aliases: []string{"problem"},
		Short:   "List the problems of the agent and its pods: invalid manifests, bad node conditions",
		Example: "  berth get problems",
		Args:    command.Usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, err := a.Client().Status(cmd.Context())
			if err != nil {
				return err
			}
			if out.Structured() {
				return out.Object(cmd.OutOrStdout(), st)
			}
			problems := append(conditionProblems(st.Conditions), st.Problems...)
			if len(problems) == 0 {
				nothing(cmd, "problems", "")
			}
			return printer.Problems(cmd.OutOrStdout(), problems, time.Now())
		},
	}
	out.Add(cmd, "json", "yaml")
	return cmd
}

// conditionProblems returns the node conditions that report a problem: Ready if it is not True, and any
// other that is not False (core/v1 NodeCondition).
func conditionProblems(conditions []corev1.NodeCondition) []api.Problem {
	var all []api.Problem
	for _, c := range conditions {
		good := corev1.ConditionFalse
		if c.Type == corev1.NodeReady {
			good = corev1.ConditionTrue
		}
		if c.Status != good {
			all = append(all,
				api.Problem{Origin: "condition " + string(c.Type), Message: c.Message, Since: c.LastTransitionTime})
		}
	}
	return all
}

func unknownResource(name string) error {
	return client.Next(fmt.Errorf("the agent has no resource %q", name),
		"it has pods, events, images, problems, configmaps, secrets, persistentvolumeclaims, persistentvolumes and "+
			"runtimeclasses")
}
