// Package source determines which pods should run on this node. It reads manifests from a directory or file and from a
// URL. It receives pods from the agent's own API and from the API server. It is the only writer of the tables of
// desired pods, objects and problems.
//
//	directory (inotify, relist) --+
//	URL (poll) -------------------+--> merge --> Desired  (pods, by UID)
//	Local (berth apply, run) -----+         +--> Objects  (by kind and name)
//	Cluster (watch, objects) -----+         +--> Problems (what could not be used, and why)
//	      +--> Mirrors (the API server's copies of static pods)
//
// Package content turns texts into pods and objects, and the packages below it read the directory and the URL.
// Package contest decides which of several pods or objects gets a name. So a change costs the same beside few pods and
// beside many.
//
// A pod in Desired is ready to run: complete, valid and with its UID. If a manifest without a UID of its own is edited,
// its pod gets another UID: the old pod ends and a new one starts. If only CPU and memory of containers were edited, it
// stays the same pod (package identity). Values in the tables are never changed.
//
// Changes over the API to a pod whose manifest the agent does not write (resources, ephemeral containers) are stored
// with its identity.
//
// A source that cannot be read does not remove its pods. A pod stays until its manifest is removed or a valid version
// without the pod replaces it. If the manifest directory itself disappears, Options.Keep decides whether its pods run
// on.
//
// Fate says whether a user removed the manifest of an object, or whether it is only missing.
//
// Until Synced is closed, a missing pod means nothing: some source may not have been read yet.
package source
