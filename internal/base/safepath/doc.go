// Package safepath opens, makes and removes paths in directories that containers can write to.
//
// A container may put a symbolic link anywhere in its volumes and replace it at any moment. So no function here checks
// a path and then uses it. Each walks from an open directory with openat2(2), which refuses to leave the directory, and
// returns the file that it has opened. The attacks are CVE-2017-1002101 and CVE-2021-25741.
//
// It owns no path and keeps no state. It needs Linux 5.6.
package safepath
