// Package timeline records how a pod came up: every step and every CRI call as an
// OpenTelemetry span.
//
// It owns the spans' names for things (Kind, attribute keys), the Recorder that
// turns the spans of a pod into a Timeline and keeps the last ones on disk, the
// TracerProvider with its optional OTLP export, and the drawing. Steps write spans with Start,
// Wait and End; the local API and berth trace read Timelines.
//
//	StartPod --> root span -- Start, Wait --> child spans
//	                |                             |
//	                v                             v
//	             open: spans are taken <----------+
//	                |
//	    root span ends: ready, or failed
//	                v
//	             finished: only spans that had begun may still end
//	                |
//	    last span ends
//	                v
//	             settled: never changes again
//
// An unfinished timeline is on disk too, at most Options.Delay behind. One found
// there at start is of an agent that was killed: it is shown as interrupted.
package timeline
