// Package machinetest provides the sysfs of real machines for tests. There is one file for each machine in testdata;
// its README names their sources. Pack creates such a file, and `go run ./internal/node/machine/machinetest/snapshot`
// records the machine that it runs on.
//
// A file has one line for each file of sysfs and proc that machine.Read reads: the name, a colon and the content. If
// the name contains a list in braces, the files of all these CPUs or nodes have the same content:
//
//	sys/devices/system/cpu/cpu{0-7,16-23}/topology/physical_package_id: 0
package machinetest
