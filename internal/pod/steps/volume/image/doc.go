// Package image makes volumes of images (KEP-4639). It brings the image; the
// runtime mounts it for each container, read-only, and takes it away with the
// sandbox. It owns nothing on disk.
package image
