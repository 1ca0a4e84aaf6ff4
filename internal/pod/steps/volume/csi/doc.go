// Package csi mounts the volumes of CSI drivers (Container Storage Interface 1.x):
// PersistentVolumes with csi, as file systems and as block devices, and csi volumes
// of pods (inline ephemeral).
//
// Drivers come by package plugin (Register) and are used from then on. Package csinode
// tells the cluster of them.
//
// It owns in <root>, as the kubelet has it, so that either finds what the other has
// mounted:
//
//	pods/<uid>/volumes/kubernetes.io~csi/<name>/{vol_data.json,mount}     published; name is that of the PersistentVolume or the pod's volume
//	plugins/kubernetes.io/csi/<driver>/<hash>/{vol_data.json,globalmount} staged
//	plugins/kubernetes.io/csi/volumeDevices/{staging,publish,<pv>}        the same of block devices
//
// The kinds are Kind, of an agent with a cluster, and Left, of one without, which only
// takes away what it finds.
//
// What is on disk says what to undo: a driver is asked for nothing of which there is
// no vol_data.json, and one that is there is removed after the driver has answered.
//
// A volume whose driver has not registered, whose VolumeAttachment is not attached
// or whose CSIDriver is not known yet waits, and is woken when that changes. Every
// call of a driver ends after two minutes, and with its context.
package csi
