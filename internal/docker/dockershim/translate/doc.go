// Package translate turns requests of the CRI into requests of the Docker Engine API.
//
// It is pure, and owns every decision on what Docker gets for a pod: namespaces, limits, mounts, devices and security
// options. What Docker cannot do is an error that names it. docs/docker.md lists these.
package translate
