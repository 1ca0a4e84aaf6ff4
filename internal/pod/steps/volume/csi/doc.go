// Package csi mounts the volumes of CSI drivers (Container Storage Interface 1.x): PersistentVolumes, as file systems
// and as block devices, and the csi volumes of pods (inline ephemeral).
//
// Package driver has the drivers that have registered, and the CSIDriver objects. Package csinode publishes the drivers
// to the API server. Package expansion decides when a volume grows.
//
// Package csi owns these files in <root>. They are laid out as the kubelet does, so that agent and kubelet find each
// other's volumes. <name> is the name of the PersistentVolume or of the pod's own volume:
//
//	pods/<uid>/volumes/kubernetes.io~csi/<name>/{vol_data.json,mount}     published volumes
//	plugins/kubernetes.io/csi/<driver>/<hash>/{vol_data.json,globalmount} staged volumes
//	plugins/kubernetes.io/csi/volumeDevices/{staging,publish,<pv>}        staged and published block devices
//
// Kind serves an agent with a cluster. Left serves an agent without one and only removes volumes that it finds.
//
// The files record the work to undo. A vol_data.json is written before the first call of the driver and deleted after
// the driver has undone its work; without the file, the driver is not called.
//
// A volume waits until its driver has registered, its VolumeAttachment is attached and its CSIDriver is known. Each of
// these changes wakes it. A call of a driver ends after two minutes, or with its context.
package csi
