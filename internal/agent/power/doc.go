// Package power connects a shutdown of the machine with the pods: package shutdown decides and waits, and the fleet
// ends the pods. It owns the list of callers that wait for a pod to end.
package power
