// Package mount calls mount(2) and umount2(2) in a child process.
//
// Both calls may wait in the kernel for a server or a disk that does not answer, and a thread of this process could not
// be interrupted. So a child process, which runs this same binary, makes the call. It is killed when the caller no
// longer waits. The child shares the mount namespace: its mounts are in the mount table even if it was killed before it
// could report success. Only Detach makes its call in this process: it is for local file systems.
//
// The package owns its child processes. The caller owns the mounts.
package mount
