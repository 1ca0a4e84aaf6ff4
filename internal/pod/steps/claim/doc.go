// Package claim binds PersistentVolumeClaims to PersistentVolumes on a machine
// without a control plane, and makes directories for those that find none.
//
// It owns
//
//	<root>/claims.json       which claim has which volume, and the pods that use it
//	<root>/volumes/pvc-...   the content of the volumes that it made
//
// and is the only writer of both. The claims and volumes of manifests come from
// the table of package object, and nothing is written there. The volumes of pods
// ask Bound, the local API shows Rows.
//
// A binding is on disk before anything is made or mounted for it, and leaves the
// disk after everything that was made is gone, so that an agent killed in between
// goes on where it was.
//
// On a node of a cluster the claims of the API server's pods are bound by a control
// plane. Of those it says only whether a pod can use them here; nothing of them is
// kept or made.
//
// A claim is its namespace and name: one that goes and comes back finds its
// volume again, as long as that is kept.
package claim
