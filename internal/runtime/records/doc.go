// Package records keeps containerd's records (its bbolt database of images, leases, containers and sandboxes) without a
// sync for each transaction. The start of a pod has eight transactions, and bbolt syncs twice for each.
//
// Most records are worth nothing after a loss of power: the containers and sandboxes that they describe have ended with
// it. The images have not. So containerd writes without a sync, and this package copies the database to a file beside
// it, which it syncs: soon after a change, and before a caller hears that an image is there (Sync).
//
//	meta.db          the database. Unless power is lost, the kernel writes all of it in time, even if the agent is
//	                 killed.
//	meta.db.synced   the copy. After a loss of power it takes the place of the database, which may be damaged.
//	meta.db.boot     the boot in which containerd writes without syncs, or nothing if it has ended and everything is
//	                 synced. A database that has the mark of another boot met a loss of power.
//
// The copy may know an image whose content is gone: it was removed in the last moments before power was lost. Verify
// forgets such images, so that they are pulled again. What the copy does not know yet, such as a container's snapshot,
// containerd removes as garbage.
package records
