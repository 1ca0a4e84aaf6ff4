// Package containers finds the container of a pod that a request to the node means, and the status of a container. It
// keeps no state.
package containers
