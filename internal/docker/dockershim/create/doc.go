// Package create creates containers of Docker for pods, also when the name of one is in use.
//
// It has no state: the holder of a name is judged by its labels.
package create
