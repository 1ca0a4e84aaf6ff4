// Package source says which pods are wanted on this node: it reads manifests
// from a directory or file, from a URL, and from the agent's own API, takes what
// the API server has for this node, and is the only writer of the tables of desired
// pods and of objects.
//
//	directory (inotify, relist) --+
//	URL (poll) -------------------+--> merge --> Desired  (pods, by UID)
//	Local (berth apply, run) -----+         +--> Objects  (by kind and name)
//	Cluster (watch, objects) -----+         +--> Problems (what was not taken, and why)
//	      +--> Mirrors (the API server's copies of static pods)
//
// A pod stands in Desired as it is to run: complete, valid, with its UID. An
// edit of a manifest that has no UID of its own is another UID: the old pod ends
// and a new one starts. An edit of nothing but the CPU and memory of containers
// is the same pod (package identity). Values in the tables are never changed.
//
// What is changed over the API of a pod whose manifest is not the agent's to
// write (its resources, ephemeral containers) is kept beside its identity.
//
// What cannot be read does not count against what could be read before: a pod
// stays until its manifest is removed, or is replaced by a good one without it.
//
// Nothing may be concluded from a pod's absence before Synced: until then some
// source may not have been heard.
package source
