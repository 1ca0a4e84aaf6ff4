// Package registry is a container registry on the loopback interface for tests:
// the library's in memory (go-containerregistry), behind faults that real ones
// have. It keeps count of what was fetched.
package registry
