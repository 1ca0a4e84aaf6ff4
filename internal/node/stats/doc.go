// Package stats reports what pods and the node use, in the three ways of the kubelet: /metrics/resource,
// /metrics/cadvisor and /stats/summary.
//
// Each request reads the cgroups, /proc and the runtime. Between requests nothing is read, so an idle node does no work
// for statistics. The package keeps what the next request needs: the last CPU times, from which it computes rates, and
// the sizes of directories, which it measures at most once in volumeStatsAggPeriod.
//
//	Source (pods, containers, their cgroups) --read--> Sample --> metrics, Summary
package stats
