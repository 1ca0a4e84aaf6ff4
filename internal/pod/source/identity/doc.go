// Package identity remembers who the pods of manifests in files and at URLs are,
// so that one whose CPU and memory were edited is the same pod, and what was
// changed of them over the agent's API, which does not write manifests.
//
// It owns one file; package source is its only user and guards it by a lock.
package identity
