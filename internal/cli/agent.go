package cli

import (
	"errors"
	"io"
)

// newAgent is the one place where the commands make an agent.
func newAgent(agentOptions) (agentProcess, error) {
	return nil, errors.New("this build has no agent")
}

// printSteps lists the steps of a pod's life.
func printSteps(io.Writer) error {
	return errors.New("this build has no agent")
}
