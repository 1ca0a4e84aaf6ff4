// Package podlog reads the log files of containers.
//
// It owns the names of log files and their lines' formats: CRI's, and the json-file of
// Docker. The runtime writes the files, the agent rotates them; the local API
// and the commands read them with Read, container names them with File and LegacyLink.
//
// A container instance has one log that is spread over files, oldest first:
//
//	0.log.20260301-120000.gz   rotated twice or more, compressed
//	0.log.20260301-121000      rotated last
//	0.log                      written now
//
// While one is rotated the runtime may still write to the renamed file, even
// after the new one is there. A reader leaves a file when its last writer has
// closed it or, for writers that never do, 100 ms after a later file has content.
package podlog
