// Package archive packs files as a tar stream and unpacks a stream below a directory.
//
// Both ends of "berth cp" use it: the agent for the files of a container, the command for the user's files. Neither
// trusts the other: unpacked files stay below the target directory, whatever the stream or existing files say.
//
// A stream has one file or one directory. Its first entry has the name "." and the type; for a directory, the other
// entries are its content.
package archive
