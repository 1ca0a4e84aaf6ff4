// Package dra gives pods the devices of their ResourceClaims (dynamic resource
// allocation, KEP-4381): it has drivers prepare claims ahead of a pod's sandbox, and
// puts the CDI names that they answer with into the configuration of containers.
//
// It owns <root>/dra_manager_state, the claims that are prepared and the pods that
// use them, in the kubelet's form: either program goes on with the other's. The
// scheduler decides on devices and drivers publish them; nothing is decided here.
//
//	(unknown) --first pod--> booked --NodePrepareResources--> prepared
//	    ^                      |                                 |
//	    +---- NodeUnprepareResources, when the last pod has ended
//
// A claim is booked before its driver is asked: what a crash leaves half done is
// unprepared with the pod. One that was prepared since the machine booted is not
// asked for again, so its pods start containers also without the API server.
//
// Drivers come by way of package plugin. One that has not come back after Grace has
// its ResourceSlices removed, so that no more pods are sent here for its devices.
package dra
