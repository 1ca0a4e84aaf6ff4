package command

import (
	"fmt"

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
