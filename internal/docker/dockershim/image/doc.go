// Package image lists, pulls and removes the images of a Docker Engine.
//
// It owns a cache of the digests of images by ID, which lists and statuses of containers read. A pull may add a digest
// to an image, so it removes the image from the cache. The package also has the progress of running pulls.
package image
