// Package apiserver watches the pods of this node at the API server: the pods that have its name in spec.nodeName,
// and no others. It passes them on as the API server sent them, without their managed fields, and stores none itself.
//
//	list or watch-list --Replace--> Sink
//	watch              --Put, Drop-> Sink
//
// A watch that is cut continues where it ended. If its version is too old (410), it starts again with a complete
// list. While the API server is away, the Sink gets no calls, and its pods stay as they are.
package apiserver
