// Package history keeps the usage of the node over the last day: CPU, memory, disks and pressure stall.
//
// It owns the file samples in its directory, a ring of Kept slots of 52 bytes each: 150 KB, whatever happens. The agent
// runs it, the local API reads it.
//
//	/proc, statfs --every Interval--> counters --between--> Sample --> pending --10 samples, or the end--> file
//	                                                                     |                                  |
//	                                                                     +------------> readers <-----------+
//
// A sample costs one wake-up and seven small files of the kernel (BenchmarkRead). The file is written once for several
// samples, so that a disk may sleep. An agent that is killed loses the samples since then. Nothing else is in memory:
// readers read the file.
package history
