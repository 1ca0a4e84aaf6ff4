// Package agent wires the parts of Berth together. It is the only package that imports many. pods.go lists the steps of
// a pod's life, run.go lists the loops, and the other files build one group of parts each.
package agent
