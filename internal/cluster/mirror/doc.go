// Package mirror shows static pods in the API. For each pod of a manifest directory or URL it keeps a copy there, the
// mirror pod, which is owned by the Node. The copy is for other clients to read, and holds the pod's status. What
// happens to the copy never affects the static pod, which starts, runs and ends without this package.
//
//	static pod   mirror pod                          action
//	wanted       none                                create
//	wanted       its own                             nothing
//	wanted       another's, outdated, being deleted  delete; the watch then reports the deletion
//	none         any                                 delete
//
// Only this package creates and deletes mirror pods. It reads the existing ones from the tables of package source.
// Each name has its own tries and its own back-off: a copy that the API server refuses delays no other.
package mirror
