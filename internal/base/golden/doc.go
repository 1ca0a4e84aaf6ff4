// Package golden compares results of tests with files, in testdata or elsewhere. go test -update writes the files.
package golden
