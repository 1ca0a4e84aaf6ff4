// Command snapshot records what machine.Read reads below a directory, by default on the machine it runs on, as a file
// for package machinetest.
package main
