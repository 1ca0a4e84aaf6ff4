// Package kind has the kinds of container runtimes: embedded.go for the runtime in this process, docker.go for a Docker
// Engine, socket.go for one behind a CRI socket. Each implements engine.Runtime. To add a kind, implement
// engine.Runtime here, and add it to both functions of All.
//
// Only this package and the command line link the embedded runtime. The parts of the agent know it as an
// engine.Runtime, so that their tests build without containerd.
package kind
