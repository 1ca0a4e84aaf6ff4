// Package dra gives pods the devices of their ResourceClaims (dynamic resource allocation, KEP-4381). It calls drivers
// to prepare the claims before a pod's sandbox starts. It adds the CDI names from their answers to the configuration of
// containers.
//
// It owns <root>/dra_manager_state: the prepared claims and the pods that use them. The file has the kubelet's form, so
// that a kubelet and this agent can each continue from the other's file. The scheduler chooses devices and drivers
// publish them; this package chooses nothing.
//
//	(unknown) --first pod--> booked --NodePrepareResources--> prepared
//	    ^                      |                                 |
//	    +---- NodeUnprepareResources, when the last pod has ended
//
// A claim is recorded before its driver is called, so that after a crash the pod's teardown still unprepares it. A
// claim that was prepared since the machine booted is not prepared again. Its pods can therefore start containers
// without the API server.
//
// Drivers register through package plugin. If a driver does not return within Grace, its ResourceSlices are deleted, so
// that the scheduler stops sending pods here for its devices.
package dra
