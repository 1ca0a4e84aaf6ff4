// Package engine starts the container runtime of this node, or connects to it. It owns the list of runtime kinds and
// the choice between them.
//
// A Runtime is one kind: embedded (embedded.go) or behind a CRI socket (socket.go). Start chooses a kind, starts it and
// reads its features. The Engine that it returns is the same for all kinds. Nothing outside this package branches on
// the kind. To add a kind, implement Runtime and add it to Start.
//
//	endpoint.Choose --> Runtime.Connect --> Verify, RuntimeConfig, Status --> Engine
package engine
