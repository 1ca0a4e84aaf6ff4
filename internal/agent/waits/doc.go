// Package waits says in the words of a pod's status what its worker waits for. It
// reads a worker's failures and keeps nothing.
package waits
