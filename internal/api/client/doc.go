// Package client speaks to the agent's local API over its socket.
//
// It owns the connection and turns every failure into an error that says what
// to do next. It keeps nothing: the commands in cli hold what they need.
package client
