// Package topologytest has what topology is tested and measured with: the answer
// found the long way, and hints as the allocators of a large node give them.
package topologytest
