// Package gc removes the remains of live pods, and remains of removed pods after an agent was killed.
//
// For a live pod it removes replaced containers, replaced sandboxes, and the logs of earlier instances, within the
// limits of a Policy. For a removed pod it removes everything that the pod's teardown has missed. It checks a pod when
// its entry in the observed table changes, and the whole node once at the start. While nothing changes it does nothing.
//
//	[observed] --change--> decide --> containers, sandboxes, logs
//	fleet -------gone----> decide --> everything that is left
//	start ---------------> log directories and links of unknown pods
//
// It does not end pods that are no longer wanted: package fleet starts a worker for them, which also removes their
// directories and cgroups. It does not remove images either.
package gc
