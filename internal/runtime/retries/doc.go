// Package retries makes containerd look less often for events that it could not handle.
//
// The CRI plugin handles ends of containers, OOM kills and changes of images. What fails is tried again with growing
// delays. A monitor looks each second for what is due, also while nothing has failed, and so does another one for
// sandboxes of earlier versions. These two ticks were half of the CPU time of an idle agent. Here they come each second
// only for half a minute after the end of a container, and otherwise twice a minute.
package retries
