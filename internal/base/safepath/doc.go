// Package safepath opens, makes and removes paths in directories that
// containers can write to.
//
// A container may put a symbolic link anywhere in its volumes, and swap it at
// any moment. So nothing here checks a path and then uses it: every function
// walks from a directory held by file descriptor with openat2(2), which refuses
// to leave it, and hands back the descriptor it arrived at. These are the
// attacks of CVE-2017-1002101 and CVE-2021-25741.
//
// It owns no path and keeps no state. Linux 5.6 is needed.
package safepath
