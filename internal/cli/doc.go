// Package cli implements the berth command, with one file or one package for each subcommand.
//
// It owns the flags, the arguments and the output. Commands about pods call the agent over its socket
// (package client). The commands agent and run contain the agent, and runtime contains the container
// runtime. agent.go is the one place that builds an agent.
package cli
