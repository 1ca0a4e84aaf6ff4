// Package handler runs the lifecycle handlers of a container's spec, postStart and preStop: exec, httpGet, sleep and
// tcpSocket.
//
// It owns how a handler is executed and when it counts as failed. Package container decides when one runs, and what
// follows from a failure. It keeps no state.
package handler
