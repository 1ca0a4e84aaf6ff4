// Package cli is the berth command: one file for each subcommand.
//
// It owns what a user types and sees. Commands about pods speak to the agent
// over its socket (client); agent, run and runtime are the agent or the
// container runtime themselves. agent.go is the one place that makes an agent.
package cli
