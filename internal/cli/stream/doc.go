// Package stream implements the local end of connections into containers: terminals, files and ports.
package stream
