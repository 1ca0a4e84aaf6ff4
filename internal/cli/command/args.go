package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api/client"
)

// PodArguments returns the pods in arguments of the form "pod NAME..." or "pod/NAME...", as kubectl accepts
// them.
func PodArguments(args []string) []string {
	if len(args) > 0 && IsPods(args[0]) {
		return args[1:]
	}
	return args
}

// PodArgument returns the single pod that the arguments name.
func PodArgument(args []string) (string, error) {
	names := PodArguments(args)
	if len(names) != 1 {
		return "", client.Next(fmt.Errorf("expected one pod, got %d", len(names)), "write pod NAME, or pod/NAME")
	}
	return names[0], nil
}

// CompleteTyped completes the word "pod", and then names of pods.
func (a *App) CompleteTyped(s *Scope) Completion {
	names := a.CompletePod(s)
	return func(cmd *cobra.Command, args []string, partial string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return []string{"pod"}, cobra.ShellCompDirectiveNoFileComp
		}
		return names(cmd, nil, partial)
	}
}
