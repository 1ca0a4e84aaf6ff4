// Package drift repairs cgroups that were changed from outside: by `systemctl daemon-reload`, by another program or by
// hand. It counts each repair and reports it as an event.
//
// It does not know the wanted values. Package cgroup, and Containers in this package, register subjects, which can
// compare a cgroup with its wanted values and repair it. A write to a watched file wakes the check; inotify(7) reports
// writes from user space on both cgroup versions, and that it lost events. The kernel's own changes are not reported.
// They follow a change of the machine's CPUs or memory nodes, which Watch looks at. A slow audit finds what is left.
//
//	write --gather--> differs? --confirm--> still the same? --> repair, event, metric
//
// The confirmation avoids repairs in the middle of a legitimate change: a resize or an update by the runtime writes one
// file after the other. It gives up after a few checks, so that a program that writes all the time is repaired too.
// While nothing is written, the only cost is reading two files of the machine, and all files once in Options.Audit.
//
// Each subject is checked in its own goroutine, so that a runtime that hangs delays only its own containers. A repair
// writes the files first and updates the runtime later. So the agent notices a second change while the runtime is busy
// with the first.
package drift
