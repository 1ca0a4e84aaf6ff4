// Package image lists, pulls and removes the images of a Docker Engine.
//
// It owns a cache of the digests of images by ID, which lists and statuses of containers read. An image's digest may
// come later, with a pull, so that only digests are kept.
package image
