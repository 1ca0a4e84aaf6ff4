// Package hostpath shows a file or directory of the host to a pod.
//
// It owns nothing: what it makes (DirectoryOrCreate, FileOrCreate) stays when
// the pod goes.
package hostpath
