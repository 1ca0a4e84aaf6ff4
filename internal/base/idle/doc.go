// Package idle tells the busy times of a process from its idle ones. It owns no state.
package idle
