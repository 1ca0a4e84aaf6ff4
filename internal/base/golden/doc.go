// Package golden compares results of tests with files in testdata. go test -update rewrites the files.
package golden
