// Package stats reports the resource usage of pods and of the node. It serves the kubelet's three endpoints:
// /metrics/resource, /metrics/cadvisor and /stats/summary.
//
// Each request reads the cgroups, /proc and the runtime. Between requests nothing is read, so an idle node does no work
// for statistics. The package keeps two things for the next request: the last CPU times, to compute rates, and the
// sizes of directories, which it measures at most once in volumeStatsAggPeriod.
//
//	Source (pods, containers, their cgroups) --read--> Sample --> metrics, Summary
package stats
