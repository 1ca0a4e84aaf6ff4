// Package containers finds the container of a pod that a request to the node means. It keeps no state.
package containers
