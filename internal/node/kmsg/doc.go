// Package kmsg reads what the kernel says of the machine in its log, /dev/kmsg, and
// tells of it in events of the node: that a process was killed because the machine
// has no memory left (SystemOOM). What is killed at the limit of a cgroup is its
// pod's own matter, and is seen in the status of the container.
//
// It owns nothing, and reads only what is said while it runs. Programs may write to
// the log too, in the kernel's words: only records of the facility kern count, which
// the kernel gives to nobody else.
package kmsg
