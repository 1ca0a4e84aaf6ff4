// Package rootdir removes the files of agents from a root directory. For a directory that is also a kubelet's, it owns
// the list of entries to remove.
package rootdir
