// Package local mounts local PersistentVolumes: directories of this machine, and
// block devices for volumeMode Block. It owns nothing on disk: what is there stays
// as it was found.
package local
