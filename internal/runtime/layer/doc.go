// Package layer measures the writable layers of containers, and frees the layers of containers that were removed.
//
// The removal of a container only marks its layer as unused. The next garbage collection of containerd removes the
// files. containerd keeps the share of the time that collections take below a bound. So on a busy machine, where they
// are slow, they come minutes apart.
package layer
