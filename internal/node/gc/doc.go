// Package gc removes what pods leave behind while they live, and what an agent
// that was killed left of pods that are gone.
//
// Of a live pod it owns the removal of dead containers that have a successor, of
// sandboxes that were replaced, and of the logs of earlier instances, within the
// bounds of a Policy. When a pod
// is gone it removes what its end has missed. It looks at a pod when the
// observed table shows a change of it, at the node once at the start; when
// nothing happens it does nothing.
//
//	[observed] --change--> decide --> containers, sandboxes, logs
//	fleet -------gone----> decide --> whatever is left
//	start ---------------> log directories and links of unknown pods
//
// What it does not own: ending pods that nobody wants, with their directories
// and cgroups (fleet, which gives them a worker), and images.
package gc
