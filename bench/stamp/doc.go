// Package stamp waits for the stamps of workloads. A stamp is a file with the time at which a workload ran, which the
// workload writes: nanoseconds since 1970 in decimal digits, and a line feed.
package stamp
