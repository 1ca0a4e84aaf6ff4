// Package power wires what happens to pods when the machine goes down: package
// shutdown decides and waits, the fleet ends the pods. It owns who waits for the
// end of which pod.
package power
