// Package rootfs mounts and removes the root file systems of containers.
package rootfs
