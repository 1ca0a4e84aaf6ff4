// Package attachment owns the volumes that controllers of the cluster attach to this node. It reports them as in use in
// the Node's status.volumesInUse, so that they stay attached, and waits for the Node object.
//
// Volumes of CSI drivers have a VolumeAttachment object, which package csi reads. Other volumes are attached when they
// are in the Node's status.volumesAttached. Such a volume has its name in the file
//
//	plugins/<kind>/<hash>/attached
//
// of its shared part, so that the next agent reports it at once.
package attachment
