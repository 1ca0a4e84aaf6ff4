// Command vm runs end-to-end scripts and tests of packages on a machine that is not the one at
// hand: Debian's cloud kernel under qemu's software emulation, with 8 CPUs on 2 NUMA nodes, all
// capabilities, and cgroup v2, v1, or Debian's systemd as process 1. It needs no KVM and no network,
// and installs nothing.
//
//	bin/vm/vm -kernel DIR -systemd DIR [-machine v1|v2|systemd] [-run REGEXP]
//
// Scripts of test/e2e have a control plane on the machine at hand, the only thing that the guest
// reaches: what is done to the guest's clock is done to a node's.
//
// The directories are unpacked packages (hack/unpack.sh prints them). bin/berth, bin/workload.tar,
// bin/cluster and bin/vm, which has the compiled tests, are there (make vmtest). The exit status is 1 if a test failed.
//
// The same program is init in the machine, or a service of systemd's: see guest.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if os.Getpid() == 1 || len(os.Args) == 2 && os.Args[1] == asService {
		guest()
	}
	if len(os.Args) == 3 && os.Args[1] == asRelay {
		if err := relay(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "vm:", err)
			os.Exit(1)
		}
		return
	}
	runtime.LockOSThread() // qemu ends with the thread that started it
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		os.Exit(1)
	}
}

// boot is one start of the machine.
type boot struct {
	machine string   // v2 and v1, of cgroups, or systemd, which has v2
	scripts []string // of test/script
	alone   []string // the same, beside which no other may run
	e2e     []string // of test/e2e, alone too
	units   []string // packages in internal
}

// boots are what make vmtest runs. A script or test that skips there has failed: it is on the list
// because the machine has what it needs. Emulation is slow: what a script shows on the machine at
// hand as well, as most do of cgroup v1, is not on the list.
func boots() []boot {
	return []boot{{
		machine: "v2",
		scripts: []string{"pinning", "pinned-options", "bounds", "memory-qos", "apparmor", "drift", "resize"},
		units:   []string{"pod/steps/cgroup", "pod/steps/volume/nfs"},
	}, {
		machine: "v1",
		scripts: []string{"pinning", "bounds", "drift", "resize"},
		units:   []string{"pod/steps/cgroup"},
	}, {
		machine: "systemd",
		scripts: []string{"systemd", "power-off"},
		alone:   []string{"clock"},
		e2e:     []string{"e2e/clock"},
	}}
}

// limit is how long one boot may take. A quiet machine of two cores needs a fifth of it.
const limit = 30 * time.Minute

func run(ctx context.Context) (err error) {
	kernel := flag.String("kernel", "", "`directory` of an unpacked linux-image package")
	systemd := flag.String("systemd", "", "`directory` of the unpacked packages of systemd and D-Bus")
	machine := flag.String("machine", "", "only this one: v1, v2 or systemd (default all)")
	only := flag.String("run", "", "only the scripts and packages that match this `regexp`")
	patience := flag.Duration("patience", 5*time.Minute, "how long a script waits for what is to happen")
	flag.Parse()
	match, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "berth-vm")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	disk := filepath.Join(dir, "disk")
	if err := makeDisk(ctx, disk, *systemd); err != nil {
		return fmt.Errorf("make the disk: %w", err)
	}
	for _, b := range boots() {
		commands := b.commands(match, *patience)
		if *machine != "" && *machine != b.machine || len(commands) == 0 {
			continue
		}
		began := time.Now()
		bounded, cancel := context.WithTimeout(ctx, limit)
		failed := b.start(bounded, *kernel, disk, commands)
		if bounded.Err() == context.DeadlineExceeded {
			failed = fmt.Errorf("it hangs: not ready after %v: %w", limit, failed)
		}
		cancel()
		if failed != nil {
			failed = fmt.Errorf("%s: %w", b.machine, failed)
		} else {
			fmt.Printf("ok    %s  %.0fs\n", b.machine, time.Since(began).Seconds())
		}
		if err = errors.Join(err, failed); ctx.Err() != nil {
			break
		}
	}
	return err
}

// commands are what the guest runs for a boot, of what match matches.
func (b boot) commands(match *regexp.Regexp, patience time.Duration) []command {
	matching := func(names []string) []string {
		return slices.DeleteFunc(names, func(n string) bool { return !match.MatchString(n) })
	}
	var all []command
	for _, unit := range matching(b.units) {
		all = append(all, command{
			Dir:  "/berth/internal/" + unit,
			Args: []string{"/berth/bin/vm/" + filepath.Base(unit) + ".test", "-test.v=test2json", "-test.timeout=5m"},
		})
	}
	// With a control plane first: the guest's clock is still right then.
	for _, s := range []struct {
		test  string
		names []string
	}{{"TestScript", matching(b.scripts)}, {"TestE2E", matching(b.e2e)}, {"TestScript", matching(b.alone)}} {
		if len(s.names) == 0 {
			continue
		}
		all = append(all, command{
			Cluster: s.test == "TestE2E",
			Dir:     "/berth/test",
			Args: []string{"/berth/bin/vm/test.test", "-test.v=test2json", "-test.timeout=29m", "-test.parallel=2",
				"-patience=" + patience.String(),
				"-test.run=^" + s.test + "$/^embedded$/^(" +
					strings.ReplaceAll(strings.Join(s.names, "|"), "e2e/", "") + ")$"},
		})
	}
	return all
}
