// Package stream is this machine's end of what goes in and out of containers:
// terminals, files and ports.
package stream
