// Package criu configures CRIU, which the OCI runtime starts for a checkpoint or a restore of a container, and reads
// its log.
//
// The standard input and output of a container are FIFOs of the host, which CRIU does not find in the container's
// mounts. CRIU needs a list of them: at a checkpoint they are external files, named by the IDs of their mounts and
// inodes. At a restore, the new FIFOs take their place.
package criu
