// Package statusrate measures how many changes of pods' statuses a real API server accepts in a second. It owns a
// control plane and a node whose pods run nowhere. It returns the results to bench.
package statusrate
