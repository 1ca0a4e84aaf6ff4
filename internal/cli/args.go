package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api/client"
)

// podArguments are the pods in arguments like kubectl's: pod NAME..., or pod/NAME...
func podArguments(args []string) []string {
	if len(args) > 0 && isPods(args[0]) {
		return args[1:]
	}
	return args
}

// podArgument is the one pod that arguments name.
func podArgument(args []string) (string, error) {
	names := podArguments(args)
	if len(names) != 1 {
		return "", client.Next(fmt.Errorf("want one pod, got %d", len(names)), "write pod NAME, or pod/NAME")
	}
	return names[0], nil
}

// completeTyped completes "pod", then names of pods.
func (a *app) completeTyped(s *scope) completion {
	names := a.completePod(s)
	return func(cmd *cobra.Command, args []string, partial string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return []string{"pod"}, cobra.ShellCompDirectiveNoFileComp
		}
		return names(cmd, nil, partial)
	}
}
