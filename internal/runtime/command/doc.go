// Package command runs commands in containers for callers that read only the first bytes of the output, such as exec
// probes. containerd's own ExecSync keeps 16 MiB of each output until the command ends. The package owns the directory
// of the commands' pipes.
package command
