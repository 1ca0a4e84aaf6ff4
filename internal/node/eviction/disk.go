package eviction

import "slices"

// Disks identifies the file systems of logs and volumes, images and writable layers. Equal values mean the same file
// system.
type Disks struct {
	// Node holds logs, emptyDirs and the agent's own files, Image holds images, Container the writable layers of
	// containers.
	Node, Image, Container string
}

// Parts says which data of pods and of the node lies on a file system.
type Parts struct {
	LogsAndVolumes, Images, Layers bool
}

// Parts returns the data on the file system of a signal. Memory and processes have none.
func (d Disks) Parts(s Signal) Parts {
	var id string
	switch s {
	case NodeFsAvailable, NodeFsInodesFree:
		id = d.Node
	case ImageFsAvailable, ImageFsInodesFree:
		id = d.Image
	case ContainerFsAvailable, ContainerFsInodesFree:
		id = d.Container
	default:
		return Parts{}
	}
	return Parts{LogsAndVolumes: id == d.Node, Images: id == d.Image, Layers: id == d.Container}
}

// Complete adds the thresholds of the file system of containers. If it is the node's or the images' file system, it has
// that one's thresholds. Thresholds of its own are then left out, as by the kubelet, and ignored has their signals. A
// file system of its own keeps its thresholds. Without any it has the thresholds of the node's file system.
func (d Disks) Complete(thresholds []Threshold) (all []Threshold, ignored []Signal) {
	like := map[Signal]Signal{NodeFsAvailable: ContainerFsAvailable, NodeFsInodesFree: ContainerFsInodesFree}
	if d.Container == d.Image && d.Image != d.Node {
		like = map[Signal]Signal{ImageFsAvailable: ContainerFsAvailable, ImageFsInodesFree: ContainerFsInodesFree}
	}
	apart := d.Container != d.Node && d.Container != d.Image
	own := func(t Threshold) bool { return t.Signal == ContainerFsAvailable || t.Signal == ContainerFsInodesFree }
	if apart && slices.ContainsFunc(thresholds, own) {
		return slices.Clone(thresholds), nil
	}
	for _, t := range thresholds {
		if own(t) {
			ignored = append(ignored, t.Signal)
			continue
		}
		all = append(all, t)
		if signal, ok := like[t.Signal]; ok {
			t.Signal = signal
			all = append(all, t)
		}
	}
	return all, ignored
}
