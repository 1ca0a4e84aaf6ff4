// Package usage reads how much CPU, memory and devices the processes in a cgroup use, on cgroup v1 and v2. It also
// reads the traffic of a process's network interfaces. It keeps nothing but the open files of a Reader.
package usage
