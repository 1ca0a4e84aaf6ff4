// Package kmsg reads the kernel's log, /dev/kmsg, and reports the processes that the kernel kills for lack of memory.
// Events of their pod say whether a container, the pod, all pods or the machine ran out of memory. If it was the
// machine, the node has an event too (SystemOOM).
//
// It reads only records written while it runs. Programs can write to the log too and imitate the kernel. So only
// records of the facility kern count, which programs cannot use.
package kmsg
