// Package doctor checks whether a machine can run pods well. Read reads the facts of the machine, and Examine turns
// them into findings, each with a next step. It changes nothing. "berth doctor" prints the findings, and the agent logs
// them at its start.
package doctor
