// Package image builds the container image that tests, benchmarks and the example run: the program
// test/workload in an otherwise empty file system, as an archive that `berth image load` takes. No
// registry is involved.
package image
