// Package podlog reads the log files of containers.
//
// It owns the names of log files and the formats of their lines: CRI's, and Docker's json-file. The runtime writes the
// files and the agent rotates them. The local API and the commands read them with Read. Package container gets their
// names from File and LegacyLink.
//
// The log of a container instance is spread over several files, oldest first:
//
//	0.log.20260301-120000.gz   rotated twice or more, compressed
//	0.log.20260301-121000      rotated last
//	0.log                      written now
//
// During a rotation the runtime may still write to the renamed file, even after the new file exists. A reader leaves a
// file after its last writer has closed it. For a writer that never closes it, it leaves 2 s after a later file has
// content, or 100 ms on a file system that does not say whether there is a writer.
//
// The code is Berth's own because no library does this: the kubelet's log reader is part of k8s.io/kubernetes, which
// cannot be imported as a library, and it reads only the newest file of a log. General tail libraries know neither the
// CRI format nor its partial lines.
package podlog
