// Package unixsocket lets unix sockets lie in any directory, although the kernel limits the path of a socket to 107
// bytes (sun_path in unix(7)).
//
// Dial and Listen reach a longer path through a descriptor of its directory. Other programs, such as the shims of
// containers, cannot do that. For their sockets each root directory has a short directory of its own in /run/berth,
// which only root can enter.
package unixsocket
