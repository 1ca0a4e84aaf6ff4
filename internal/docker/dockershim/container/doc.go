// Package container makes, starts, stops and removes the containers of pods in a Docker Engine.
//
// It stores nothing: the index has what is known of containers.
//
//	created --> running --> exited --> removed
package container
