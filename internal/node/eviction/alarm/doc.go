// Package alarm makes the kernel notify the agent when memory runs short, so that the agent need not poll.
//
// On cgroup v1 the kernel notifies when the usage of a cgroup crosses a threshold (cgroup.event_control). On v2 it
// notifies when the cgroup of all pods hits its limit (memory.events). On both it notifies when tasks wait for memory
// (PSI). A notification says only that a look is due. Package eviction looks and decides.
package alarm
