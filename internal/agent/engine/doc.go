// Package engine starts the container runtime of this node, or connects to it.
//
// A Runtime is one kind of runtime; package kind has the kinds, and makes the one that the endpoint stands for. Start
// starts it and reads its features. The Engine that it returns is the same for all kinds. Nothing outside package kind
// branches on the kind.
//
//	endpoint.Choose --> Kinds.Runtime --> Connect --> Verify, RuntimeConfig, Status --> Engine
package engine
