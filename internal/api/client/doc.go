// Package client calls the agent's local API over its socket.
//
// It owns the connection and turns every failure into an error with a next step. It keeps no other state.
package client
