// Package diskusage measures the disk usage of directory trees, also while pods change them. It owns nothing; volumes
// with limits and the statistics use it.
package diskusage
