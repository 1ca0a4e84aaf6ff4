// Command berth runs Kubernetes Pods on one machine. It contains the agent, the embedded container runtime,
// and the commands that control them.
package main

import (
	"os"

	_ "github.com/berth-run/berth/internal/base/firstgc" // commands end before they would collect garbage
	"github.com/berth-run/berth/internal/base/grpcbuffer"
	"github.com/berth-run/berth/internal/base/mount"
	"github.com/berth-run/berth/internal/cli"
)

func main() {
	// A mount that may hang runs in a process of its own, which is this binary again.
	if handled, code := mount.Main(os.Args, os.Stdin, os.Stdout); handled {
		os.Exit(code)
	}
	grpcbuffer.Fit()
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
