// Package restore starts containers from checkpoints: a container whose image is a checkpoint continues where the
// checkpointed one was. The package owns the directory of the checkpoints of containers that have not started.
//
// A checkpoint image has one layer, the archive that the CRI's CheckpointContainer writes. Only an image that was
// loaded on this node is a checkpoint (Mark): the archive decides which privileges a restored process has.
//
//	CreateContainer   Before unpacks the archive and replaces the image by the one that the container was made of.
//	                  After names the unpacked archive after the new container.
//	task creation     Package tasks finds it there. The shim restores the process when the task starts.
//	StartContainer, RemoveContainer
//	                  After removes it.
package restore
