// Package mirror shows static pods to the API server: for each pod of a manifest
// directory or URL it keeps a copy there, the mirror pod, that names the node as
// its owner. The copy is for others to look at and to write the status on; what
// happens to it never happens to the static pod, which starts, runs and ends
// without a call of this package.
//
//	static pod   mirror pod                 does
//	wanted       none                       create
//	wanted       its own                    nothing
//	wanted       another's, older, deleted  delete; the watch then tells that it is gone
//	none         any                        delete
//
// It is the only one who creates and deletes mirror pods. Who they are it reads in
// the tables of package source. Each name has its own tries and its own backoff: a
// copy that the API server refuses holds up no other.
package mirror
