// Command shim serves one pod's containers to containerd, as its containerd-shim-runc-v2 does. The runtime
// carries it and executes it, at a pod's start, at its end and for questions.
//
// It owns the processes of the pod: it is their parent, keeps their exit codes and outlives the agent.
// It is a program of its own because each of these executions pays for the initialisation of all
// that is linked in: of the agent that is many times what a shim needs, in time and in memory.
package main
