// Package image builds the container images that tests, benchmarks and examples run: the programs test/workload and
// test/guestbook in otherwise empty file systems. The images are archives for `berth image load`, so they need no
// registry.
package image
