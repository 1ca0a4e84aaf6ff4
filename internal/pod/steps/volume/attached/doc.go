// Package attached lists the kinds of volumes that a controller of the cluster attaches to the node, except CSI:
// volumes of FlexVolume drivers, and disks of iSCSI targets and of Fibre Channel.
package attached
