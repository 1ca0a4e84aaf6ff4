// Package image builds the container image that tests, benchmarks and the example run: the program test/workload in an
// otherwise empty file system. The image is an archive for `berth image load`, so it needs no registry.
package image
