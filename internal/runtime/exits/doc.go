// Package exits lets containerd finish with the containers that have ended before its database closes.
//
// The CRI plugin handles the end of a container in a goroutine that containerd does not wait for when it stops. NRI
// meanwhile reads the container's records, and panics if the database is closed. The whole agent would end with it.
// Once the runtime stops, the CRI plugin does not hear of further ends. The next runtime finds them.
package exits
