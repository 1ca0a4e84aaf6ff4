// Package flexvolume mounts volumes through FlexVolume drivers: executables of the administrator in a directory of this
// machine (volumePluginDir). The driver "vendor/name" is the executable vendor~name/name. The package finds a driver
// when a volume needs it, and calls its init again after its file has changed.
//
// It owns these directories in <root>. They are laid out as the kubelet does, so that agent and kubelet find each
// other's volumes. <name> is the name of the PersistentVolume or of the pod's own volume:
//
//	pods/<uid>/volumes/<vendor>~<driver>/<name>                       one volume
//	plugins/kubernetes.io/flexvolume/<vendor>/<driver>/mounts/<name>  the mounted device of a driver that attaches
//	plugins/kubernetes.io~flexvolume/<hash>/options                   the options of the volume on that device
//
// Only the driver knows what is behind a volume, so only the driver unmounts it: a pod whose driver is gone ends when
// the driver is back.
package flexvolume
