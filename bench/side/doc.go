// Package side runs the pods that bench measures, in the two ways that it compares: with Berth (Berth), and without an
// agent, by the bare CRI calls to the embedded runtime (Floor). It owns the two processes, their directories and their
// pods. It returns times to bench, which computes the results.
package side
