// Package stats tells what pods and the node use, in the three ways that the
// kubelet does: /metrics/resource, /metrics/cadvisor and /stats/summary.
//
// Everything is read from the cgroups, /proc and the runtime when somebody asks,
// and nothing in between: an idle node does no work for statistics. It owns what
// has to be remembered for the next question: the CPU time at the last one, of
// which a rate is made, and the sizes of directories, which are measured at most
// once in volumeStatsAggPeriod.
//
//	Source (pods, containers, their cgroups) --read--> Sample --> metrics, Summary
package stats
