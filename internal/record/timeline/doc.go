// Package timeline records how a pod started: every step and every CRI call as an OpenTelemetry span.
//
// It owns the names in spans (Kind, attribute keys), the Recorder, the TracerProvider with its optional OTLP export,
// and the drawing. The Recorder turns the spans of a pod into a Timeline and keeps the last ones on disk. Steps write
// spans with Start, Wait and End. The local API and berth trace read Timelines.
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
// An unfinished timeline is on disk too, at most Options.Delay late. If there is one at the start of the agent, the
// previous agent was killed, and the timeline is shown as interrupted.
package timeline
