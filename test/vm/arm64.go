package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// asArm64 is the first argument of this program for a machine of that architecture.
const asArm64 = "arm64"

// greeting is a line that the pod of examples/hello.yaml logs.
const greeting = "hello from berth"

// runOnArm64 runs example pods on an emulated machine of that architecture, as README runs the first one on this
// machine. The guest has no program but Berth. Everything in bin/arm64 is built for the architecture.
func runOnArm64(ctx context.Context) (err error) {
	kernel := flag.String("kernel", "", "`directory` of an unpacked linux-image package for arm64")
	flag.Parse()
	dir, err := os.MkdirTemp("", "berth-arm64")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	disk, initrd := filepath.Join(dir, "disk"), filepath.Join(dir, "initrd")
	const berth, archive = "bin/arm64/berth", "bin/arm64/workload.tar"
	if err := makeDisk(ctx, disk, image{parts: []string{berth, archive, "examples"}}); err != nil {
		return fmt.Errorf("make the disk: %w", err)
	}
	j := job{Machine: "v2"}
	for _, args := range []string{
		"run --exit-when-ready --image-archive " + archive + " examples/hello.yaml",
		"run --exit-when-ready examples/read-only-root.yaml", // with a filter of system calls
		"reset --yes",
	} {
		j.Commands = append(j.Commands, command{Dir: "/berth", Args: append([]string{berth}, strings.Fields(args)...)})
	}
	if err := initramfs(initrd, arm64(*kernel), j); err != nil {
		return fmt.Errorf("make the initramfs: %w", err)
	}

	return bounded(ctx, asArm64, func(ctx context.Context) error {
		qemu, console, err := startMachine(ctx, arm64(*kernel), initrd, disk, "-smp", "2", "-m", "2G")
		if err != nil {
			return err
		}
		log := newTranscript(os.Stdout, asArm64)
		log.live = true
		if err := log.follow(qemu, console); err != nil {
			return err
		}
		if !slices.ContainsFunc(log.pending[""], func(line string) bool { return strings.HasSuffix(line, greeting) }) {
			return fmt.Errorf("the pod of examples/hello.yaml did not log %q", greeting)
		}
		return nil
	})
}
