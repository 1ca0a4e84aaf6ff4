// Package pressure connects the decisions about eviction with the pods of this node: it measures the pods, ends the
// victims, and remembers each one until its end.
//
// The file evictions.json holds the victims whose end is not complete, and the static pods that wait for the end of the
// pressure. An agent that was killed in the middle of an eviction ends the same pods again.
//
//	Evict --> [victims] --the pod has ended--> forgotten
//	                \--a static pod has ended--> waits --no pressure--> starts again, forgotten
package pressure
