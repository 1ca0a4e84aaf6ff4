// Package checkpointtest fuzzes the state files of a package.
//
// Each package that keeps a state file has a fuzz target made with Fuzz. It shows that a damaged file is named, kept
// under another name, and read as if it were absent; and that data of the right format cannot end the agent.
package checkpointtest
