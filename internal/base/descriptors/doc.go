// Package descriptors takes the open files of this process away from it, for an end that cannot wait.
package descriptors
