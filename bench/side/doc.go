// Package side runs the pods that bench measures, in the ways that it compares: with Berth (Berth), without an agent,
// by the bare CRI calls to the embedded runtime or to another one (Floor), with runc alone (Bare), and with a Docker
// Engine alone (Docker). It owns the processes, their directories, cgroups and pods. It returns times to bench, which
// computes the results.
package side
