// Package translate turns requests of the CRI into requests of the Docker Engine API.
//
// It is pure, and decides all of a request: namespaces, limits, mounts, devices and security options. A request that
// Docker cannot serve fails with an error that names the feature. docs/docker.md lists these features.
package translate
