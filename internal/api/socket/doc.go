// Package socket creates the unix socket of the agent's local API, with access for root only.
//
// It owns the socket file: it replaces one that a dead agent has left behind, and removes its own when the
// listener closes.
package socket
