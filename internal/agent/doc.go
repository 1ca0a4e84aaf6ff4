// Package agent wires the parts of Berth together. It is the only package that
// imports many, and it decides nothing: pods.go is the list of the steps of a
// pod's life, agent.go starts the loops, api.go is what the local API asks for.
package agent
