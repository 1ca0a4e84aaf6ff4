// Package volumes lists the kinds of volumes of a node. The agent mounts volumes with them, and a reset unmounts what
// an agent has left. It owns nothing.
package volumes
