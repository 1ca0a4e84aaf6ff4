// Package claim binds PersistentVolumeClaims to PersistentVolumes on a machine without a control plane. For a claim
// that no volume fits, it makes a directory.
//
// It owns
//
//	<root>/claims.json       the volume of each bound claim, the pods that use it, where the claim came from, and when
//	                         it was deleted
//	<root>/volumes/pvc-...   the content of the volumes that it made
//
// and is the only writer of both. It reads the claims and volumes of manifests from the table of package object and
// never writes there. The volume step calls Bound; the local API shows Rows.
//
// A binding is on disk before anything is made or mounted for it. It leaves the disk after everything that was made is
// deleted. So an agent that starts after a crash continues where the previous one stopped.
//
// Data is removed only after a user has deleted the claim, with "berth delete" or by removing its manifest file. That
// marks the binding, and the volume is removed when the mark is old enough (docs/adr/0023-deletion-needs-proof.md).
//
// On a node of a cluster, a control plane binds the claims of the API server's pods. For these, the package only checks
// whether a pod can use the claim on this node; it keeps and makes nothing.
//
// A claim is identified by namespace and name. A claim that is deleted and created again gets its volume back while the
// volume is kept.
package claim
