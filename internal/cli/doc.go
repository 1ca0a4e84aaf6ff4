// Package cli implements the berth command, with one file or one package for each subcommand.
//
// It owns the subcommands' flags, arguments and output. Package command has the parts that they share, and package
// container the commands that reach into a running pod. Commands about pods call the agent over its socket (package
// client). The commands agent and run contain the agent, and runtime contains the container runtime. agent.go is the
// one place that builds an agent.
package cli
