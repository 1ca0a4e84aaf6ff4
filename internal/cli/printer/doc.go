// Package printer prints API objects as text for the commands.
//
// It owns the tables with their columns, and the description of a pod in kubectl's layout. It only formats
// the objects it is given: it never calls the agent.
package printer
