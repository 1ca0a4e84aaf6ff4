// Package spans connects containerd's spans to the trace of the caller of the CRI.
package spans
