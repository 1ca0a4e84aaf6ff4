// Package container makes, starts, stops and removes the containers of pods in a Docker Engine.
//
// It stores nothing on disk. Package index has the records of containers.
//
//	created --> running --> exited --> removed
package container
