// Package drift notices that somebody else has changed a cgroup: `systemctl
// daemon-reload`, another program, a hand. It has the change repaired, counted
// and told.
//
// It knows nothing of what the values should be: packages cgroup and Containers
// here bring subjects, which can say how they differ and repair it. A write to one
// of their files wakes it (inotify(7) tells of writes from user space on both
// versions), and a slow audit finds what the kernel has changed by itself or an
// inotify that overflowed.
//
//	write --gather--> differs? --confirm--> still the same? --> repair, event, metric
//
// The confirmation is for whoever is right to write: a resize or the runtime's
// own update sets one file after the other. It ends after a few looks, so that
// somebody who writes all the time is not waited for. While nothing is written it costs
// one reading of all files in Options.Audit.
//
// Each subject is looked at on its own, so that a runtime that hangs keeps no other one waiting,
// and what is repaired is written to the files: a second change while the runtime is told of
// the first one is noticed like any other.
package drift
