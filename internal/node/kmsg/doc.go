// Package kmsg reads the kernel's log, /dev/kmsg, and reports in events of the node when a process was killed because
// the machine is out of memory (SystemOOM). Processes killed at the memory limit of a cgroup are reported in the status
// of their container instead.
//
// It reads only records written while it runs. Programs can write to the log too and imitate the kernel. So only
// records of the facility kern count, which programs cannot use.
package kmsg
