// Package topology is the command berth topology: it draws what a machine is
// built of and who holds what of it. The drawing reads what the agent answered and
// nothing else.
package topology
