// Package checkpoint keeps state on disk so that it survives a crash at any moment, a full disk and a damaged sector.
//
// It owns the file format, the way a file is replaced, and Pace, which decides when to write state that changes often.
// The caller owns the data and reports failures. A file has one writer.
//
//	{"version":1,"checksum":"sha256:<hex>","data":<JSON>}
//
// A save writes <name>.tmp beside the file, syncs it, renames it over the file and syncs the directory. So the file is
// always either the old one or the new one, complete. If a load finds a damaged file, it moves the file aside to
// <name>.corrupt-<time> and returns an error with the new name. The caller can continue, and nothing is lost.
package checkpoint
