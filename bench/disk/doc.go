// Package disk makes the file systems of a measurement, as a usual machine has them: ext4 with a journal, and a tmpfs
// for state that does not survive a reboot, such as /run. The machine's own ones may be different, and decide the
// results. In some virtual machines ext4 has no journal. Then it gives the inode of a deleted file to no other file for
// some minutes, and looks at each of these inodes before it makes a file: a start takes the longer, the more pods have
// ended before.
package disk
