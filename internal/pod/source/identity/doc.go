// Package identity stores the identities of pods whose manifests are in files and at URLs. A pod keeps its UID after
// its CPU and memory were edited. The package also stores changes made over the agent's API, because the agent does not
// write manifests.
//
// It owns one file. Package source is its only user and guards it with a lock.
package identity
