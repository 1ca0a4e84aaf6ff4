// Package shape limits how much a pod of the built-in network receives and sends, as the annotations
// kubernetes.io/ingress-bandwidth and kubernetes.io/egress-bandwidth say.
//
// The kernel's token bucket filter (tc-tbf(8)) delays packets that leave a device. What a pod receives leaves over its
// device on the bridge. What it sends arrives there. So it makes a detour over a device of type ifb, and leaves that.
package shape
