// Package hostpath lets a pod use a file or directory of the host.
//
// It owns nothing: a file or directory that it makes (DirectoryOrCreate, FileOrCreate) stays after the pod has ended.
package hostpath
