// Package lifeline records when the containers of the node's pods ran, and what their probes found, since this agent
// started.
//
// It owns the lifelines in memory, and nothing on disk. Run follows the published pods, and the probes report each
// result. The local API reads. A lifeline goes with its pod. It has at most maxInstances runs of a container and
// maxResults changes of a probe; the oldest ones go first.
package lifeline
