// Package scsi finds, scans for and removes SCSI disks, for the kinds of volumes whose disks are on a storage network.
// It keeps nothing: the kernel's files in /sys are its state.
package scsi
