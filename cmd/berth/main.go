// Command berth runs Kubernetes Pods on one machine: the agent, the embedded
// container runtime, and the commands that speak to them.
package main

import (
	"os"

	"github.com/berth-run/berth/internal/base/mount"
	"github.com/berth-run/berth/internal/cli"
)

func main() {
	// This binary is also the process that a mount which may hang is made in.
	if handled, code := mount.Main(os.Args, os.Stdin, os.Stdout); handled {
		os.Exit(code)
	}
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
