// Package image provides volumes from images (KEP-4639). It pulls the image. The runtime mounts it for each container,
// read-only, and unmounts it with the sandbox. The package owns nothing on disk.
package image
