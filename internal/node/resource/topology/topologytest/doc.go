// Package topologytest helps to test and measure package topology. It has a reference implementation that tries every
// combination, and hints as the allocators of a large node produce them.
package topologytest
