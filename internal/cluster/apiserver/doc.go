// Package apiserver watches the pods of this node at the API server: all that have
// its name in spec.nodeName, and nothing else. It hands them on as the API server
// has them, all but their managed fields, and keeps none itself.
//
//	list or watch-list --Replace--> Sink
//	watch              --Put, Drop-> Sink
//
// A watch that is cut goes on where it was; one that is too old (410) begins anew
// with a whole list. While the API server is away nothing is handed on: what was
// said last stands.
package apiserver
