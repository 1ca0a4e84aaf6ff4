// Package checkpoint keeps state on disk so that it survives a crash at any
// instant, a full disk and a damaged sector.
//
// It owns the file format and the way a file is replaced, and the Pace at which
// what changes often is written; what is in a file and who is told of a failure
// is the caller's. A file has one writer.
//
//	{"version":1,"checksum":"sha256:<hex>","data":<JSON>}
//
// A save writes <name>.tmp beside the file, syncs it, renames it over the file
// and syncs the directory: the file is at every moment the old one or the new
// one, whole. A load that finds anything else moves the file aside, to
// <name>.corrupt-<time>, and says so, so that the caller can go on and nothing
// is lost.
package checkpoint
