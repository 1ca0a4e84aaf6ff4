// Package machinetest brings the sysfs of real machines to tests. Testdata has a
// file for each, its README tells where they come from; Pack makes another,
// and `go run ./internal/node/machine/machinetest/snapshot` that of the machine it runs on.
//
// A file has one line for each file of sysfs and proc that machine.Read reads:
// its name, a colon, and its content. Where a name has a list in braces, the
// files of all these CPUs or nodes have the same content:
//
//	sys/devices/system/cpu/cpu{0-7,16-23}/topology/physical_package_id: 0
package machinetest
