// Package create creates containers of Docker for pods, also if another container has the name.
//
// It has no state: it judges the other container by its labels.
package create
