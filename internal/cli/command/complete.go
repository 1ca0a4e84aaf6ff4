package command

import (
	"context"
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
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		list, err := a.Client().Pods(ctx, client.Select{Namespace: s.Selected()})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, p := range list.Items {
			names = append(names, p.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteContainer completes a flag with the containers of the pod in the first argument.
func (a *App) CompleteContainer(s *Scope) Completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		key, err := s.Pod(args[0])
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
