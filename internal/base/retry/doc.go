// Package retry has the delays between tries of something that failed. It owns nothing: a caller keeps its own Backoff,
// and decides what counts as a failure.
package retry
