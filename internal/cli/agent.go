package cli

import (
	"errors"
	"io"
	"log/slog"

	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/runtime"
)

// newAgent makes the agent of this process.
func newAgent(config.Flags, *slog.Logger) (agentProcess, error) {
	return nil, errors.New("this build has no agent")
}

// runtimeConfig is the embedded runtime of an agent with these flags.
func runtimeConfig(config.Flags, *slog.Logger) (runtime.Config, error) {
	return runtime.Config{}, errors.New("this build has no agent")
}

// printSteps lists the steps of a pod's life.
func printSteps(io.Writer) error {
	return errors.New("this build has no agent")
}
