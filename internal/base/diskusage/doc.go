// Package diskusage measures what trees of files take of a disk, also while
// pods change them. It owns nothing; volumes with limits and statistics ask it.
package diskusage
