// Command shim creates containers, runs runc for them, and keeps their processes while the agent is away. The runtime
// carries it and starts one for all pods of a node.
//
// It serves containerd's task API (ttrpc, version 3) on a unix socket. It is a program of its own, because it must
// outlive the agent and because its memory is a cost of every node.
//
// Rules:
//
//   - No lock is held while runc runs or a container is created. A slow container delays no other container.
//   - Signals go through pidfds, never through a process ID that may have a new owner.
//   - Standard output of a container is a FIFO that it has open for reading and writing. A container can always write:
//     it keeps the pipe alive itself. The output of commands in it goes to its reader without a copy.
//   - The log is written here, so that a container never waits for an agent that is away. Attached clients get a copy.
//   - Everything that a next shim needs is in task.json beside the bundle. A shim that is killed takes no container
//     with it. The agent starts the next shim, which continues.
//
// Parts: package create creates containers, child waits for processes, cgroup reads and watches cgroups, rootfs mounts
// root file systems, stdio opens FIFOs, logger writes logs, terminal owns terminals, outbox delivers events, handover
// passes descriptors on. The registry has all containers, and the keeper follows and removes them. A witness (package
// witness) shows the agent that the shim was killed.
//
// A terminal needs an owner that outlives the shim, since its end hangs up the container. That is a process of this
// program for each terminal, in mode "console".
package main
