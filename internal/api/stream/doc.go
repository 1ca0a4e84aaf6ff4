// Package stream has the runtime open connections into pods, for the servers of the
// node. It owns nothing.
package stream
