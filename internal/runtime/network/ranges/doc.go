// Package ranges chooses the address ranges of the built-in network, so that they do not overlap with another network
// that the machine reaches. It reads the routes of all routing tables and the addresses of all interfaces, and decides.
// It changes nothing.
package ranges
