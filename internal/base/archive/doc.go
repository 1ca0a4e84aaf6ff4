// Package archive packs files as a tar stream and unpacks one below a directory.
//
// Both ends of "berth cp" use it: the agent on the files of a container, the
// command on the user's. Neither trusts the other: what is unpacked stays below
// the directory that was asked for, whatever the stream or the files there say.
//
// A stream holds one thing. Its first entry is called "." and says what the
// thing is; when that is a directory the others are what is in it.
package archive
