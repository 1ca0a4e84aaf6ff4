// Package engine starts or connects to the container runtime of this node. It owns
// what kinds of runtime there are, and which of them runs here.
//
// A Runtime is one kind: embedded (embedded.go) or behind a CRI socket (socket.go).
// Start chooses one, starts it and asks what it can do; the Engine that it returns
// is the same for all kinds. Nothing outside this package branches on the kind. To
// add a kind, implement Runtime and add it to Start.
//
//	endpoint.Choose --> Runtime.Connect --> Verify, RuntimeConfig, Status --> Engine
package engine
