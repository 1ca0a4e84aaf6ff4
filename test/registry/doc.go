// Package registry is a container registry on the loopback interface for tests. It keeps images in memory
// (go-containerregistry), can inject the faults of real registries, and counts the requests.
package registry
