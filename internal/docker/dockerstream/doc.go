// Package dockerstream runs commands in Docker's containers, attaches clients to containers, and forwards ports of
// pods.
//
//	ExecSync                     returns the output and the exit code of a command
//	Exec, Attach, PortForward    serve a client over the streaming protocols of the CRI; Server has their URLs
//
// Docker's API can start a command, but it cannot end one. So this package kills a command that exceeds its time, or
// whose client has given up. It kills the process group of the command's first process, by the process ID on this
// machine. It keeps nothing of a command that has ended.
//
// PortForward dials the port within the network namespace of the pod, first over IPv4, then over IPv6. It starts no
// program.
package dockerstream
