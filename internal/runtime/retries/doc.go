// Package retries makes containerd look less often for events that it could not handle.
//
// The CRI plugin handles ends of containers and sandboxes, OOM kills and changes of images. What fails is tried again
// with growing delays. A monitor looks each second for what is due, also while nothing has failed, and so does another
// one for sandboxes of earlier versions. These two ticks were over a third of the CPU time of an idle agent. Here they
// come each second only for half a minute after the end of a container, and otherwise twice a minute. So another event
// whose handling fails may wait for half a minute.
package retries
