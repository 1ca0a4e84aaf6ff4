package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api/client"
)

// podArguments returns the pods in arguments of the form "pod NAME..." or "pod/NAME...", as kubectl accepts
// them.
func podArguments(args []string) []string {
	if len(args) > 0 && isPods(args[0]) {
		return args[1:]
	}
	return args
}

// podArgument returns the single pod that the arguments name.
func podArgument(args []string) (string, error) {
	names := podArguments(args)
	if len(names) != 1 {
		return "", client.Next(fmt.Errorf("expected one pod, got %d", len(names)), "write pod NAME, or pod/NAME")
	}
	return names[0], nil
}

// completeTyped completes the word "pod", and then names of pods.
func (a *app) completeTyped(s *scope) completion {
	names := a.completePod(s)
	return func(cmd *cobra.Command, args []string, partial string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return []string{"pod"}, cobra.ShellCompDirectiveNoFileComp
		}
		return names(cmd, nil, partial)
	}
}
