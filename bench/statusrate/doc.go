// Package statusrate measures how many changes of pods' statuses a real API server takes in a
// second. It owns a control plane and a node whose pods run nowhere; bench reads what it found.
package statusrate
