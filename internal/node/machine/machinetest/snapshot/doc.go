// Command snapshot writes what machine.Read reads below a directory, by default
// that of the machine it runs on, as a file of package machinetest.
package main
