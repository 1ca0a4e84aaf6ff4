package command

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/model/pod"
)

// completeTimeout limits how long a shell waits for completions.
const completeTimeout = time.Second

// Completion completes one argument or flag of a command.
type Completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// CompletePod completes the first argument with the names of pods in the namespace.
func (a *App) CompletePod(s *Scope) Completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.podNames(cmd, s), cobra.ShellCompDirectiveNoFileComp
	}
}

// podNames returns the names of the pods in the namespace, or none if the agent does not answer soon.
func (a *App) podNames(cmd *cobra.Command, s *Scope) (names []string) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	list, err := a.Client().Pods(ctx, client.Select{Namespace: s.Selected()})
	if err != nil {
		return nil
	}
	for _, p := range list.Items {
		names = append(names, p.Name)
	}
	return names
}

// CompleteTyped completes one of the words first, and after "pod" the names of pods: one, or with several any number.
func (a *App) CompleteTyped(s *Scope, several bool, first ...string) Completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0:
			return first, cobra.ShellCompDirectiveNoFileComp
		case !IsPods(args[0]) || len(args) > 1 && !several:
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return without(a.podNames(cmd, s), args[1:]), cobra.ShellCompDirectiveNoFileComp
	}
}

// without returns the names that are not on the command line yet.
func without(names, given []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(given, name) })
}

// CompletePodOf completes a flag whose value is pod/NAME.
func (a *App) CompletePodOf(s *Scope) Completion {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		names := a.podNames(cmd, s)
		for i, name := range names {
			names[i] = "pod/" + name
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompletePlace completes an argument that is POD:PATH or the path of a file on this machine. Paths in a container are
// not completed.
func (a *App) CompletePlace(s *Scope) Completion {
	return func(cmd *cobra.Command, args []string, partial string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) > 1:
			return nil, cobra.ShellCompDirectiveNoFileComp
		case strings.ContainsAny(partial, "/.:"):
			return nil, cobra.ShellCompDirectiveDefault
		}
		var places []string
		for _, name := range a.podNames(cmd, s) {
			if strings.HasPrefix(name, partial) {
				places = append(places, name+":")
			}
		}
		if len(places) == 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return places, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteImage completes arguments or a flag with the names of the images that the node has. An argument may follow
// others, if several is set.
func (a *App) CompleteImage(several bool) Completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		images, err := a.Client().Images().List(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, i := range images {
			names = append(names, i.Tags...)
		}
		if several {
			names = without(names, args)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteContainer completes a flag with the containers of the pod in the first argument, or in the argument that
// names a path in a pod.
func (a *App) CompleteContainer(s *Scope) Completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		name := args[0]
		for _, arg := range args {
			if before, _, ok := strings.Cut(arg, ":"); ok {
				name = before
				break
			}
		}
		key, err := s.Pod(name)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		p, err := a.Client().Pod(key).Get(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, c := range pod.Containers(p) {
			names = append(names, c.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
