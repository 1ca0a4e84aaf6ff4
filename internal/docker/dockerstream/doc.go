// Package dockerstream runs commands in Docker's containers, attaches clients to containers, and forwards ports of
// pods.
//
//	ExecSync                     returns the output and the exit code of a command
//	Exec, Attach, PortForward    serve a client over the streaming protocols of the CRI; Server has their URLs
//
// Docker's API can start a command, but it cannot end one. A command that exceeds its time, or whose client has given
// up, is killed here with its process group, by the ID that its first process has on this machine. Nothing is kept of a
// command that has ended.
//
// A port is dialed from within the network namespace of the pod, first over IPv4, then over IPv6. No program is started
// for it.
package dockerstream
