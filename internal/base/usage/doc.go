// Package usage reads how much CPU, memory and devices the processes in a cgroup use, on cgroup v1 and v2, and how much
// the network interfaces of a process have carried. It keeps nothing.
package usage
