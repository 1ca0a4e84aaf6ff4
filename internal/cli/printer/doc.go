// Package printer turns API objects into the text that the commands show.
//
// It owns the tables, their columns and the description of a pod, laid out as
// users know them from kubectl. It reads objects and the time, and writes to
// what it is given: nothing here asks the agent.
package printer
