// Command vm runs end-to-end scripts and tests of packages in an emulated machine, the guest: Debian's cloud kernel
// under qemu's software emulation, with all capabilities. The guest has cgroup v2, cgroup v1, or Debian's systemd as
// process 1, or it is a complete Debian. It has 8 CPUs on NUMA nodes for tests that need them, and 2 CPUs for others.
// Command vm needs no KVM and no network, and installs nothing.
//
//	bin/vm/vm [-long] -kernel DIR -systemd DIR -tools DIR -debian TAR [-machine v1|v2|systemd|debian] [-run REGEXP]
//		[-beside N]
//
// Scripts of test/e2e use a control plane on the host, which is all that the guest reaches. A script that changes the
// guest's clock therefore changes only the node's clock.
//
//	bin/vm/vm powercut -kernel DIR [-cuts N] [-seed N] [-time DURATION]
//
// runs no test: it cuts the power of a machine that works, again and again. See powercut.go.
//
//	bin/vm/vm arm64 -kernel DIR
//
// runs example pods on an emulated machine of that architecture. See arm64.go.
//
// The directories are unpacked packages (hack/unpack.sh prints their paths). The files bin/berth, bin/workload.tar,
// bin/cluster and the compiled tests in bin/vm must exist; make vmtest builds them. The exit status is 1 if a test
// failed.
//
// The same program is process 1 in the guest, or a service of systemd: see guest.go.
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

	"github.com/opencontainers/cgroups"
	"golang.org/x/sync/errgroup"
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := chosen()(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		os.Exit(1)
	}
}

// chosen returns the work that the first argument chooses, and removes that argument.
func chosen() func(context.Context) error {
	if len(os.Args) == 1 {
		return run
	}
	work := map[string]func(context.Context) error{asPowercut: powercuts, asArm64: runOnArm64}[os.Args[1]]
	if work == nil {
		return run
	}
	os.Args = append(os.Args[:1:1], os.Args[2:]...)
	return work
}

// boot is one start of the machine.
type boot struct {
	machine string   // v2 or v1, the version of cgroups, or systemd or debian, which have v2
	plain   bool     // two CPUs without NUMA nodes, with which a test takes a third of the time
	scripts []string // scripts of test/script
	alone   []string // scripts of test/script that run one after the other, and beside no other script
	outside []string // scripts of test/script with the machine's containerd
	e2e     []string // scripts of test/e2e, each alone
	units   []string // packages in internal, with flags of their tests
}

// boots lists the scripts and tests of make vmtest, the longest first. A script or test that skips there counts as
// failed, because it is on the list for a feature of the machine. Emulation is slow, so the list omits scripts that
// show the same on the host.
func boots() []boot {
	return []boot{{
		machine: "systemd", plain: true,
		scripts: []string{"power-off"},
		alone:   []string{"clock"},
		e2e:     []string{"e2e/clock"},
	}, {
		machine: "v2", plain: true,
		scripts: []string{
			"bounds", "memory-qos", "apparmor", "drift", "resize", "log-links", "quota", "volumes-fc",
		},
		units: []string{"pod/steps/cgroup", "pod/steps/volume/nfs"},
	}, {
		machine: "debian", plain: true,
		alone: []string{"checkpoint", "packaged"},
	}, {
		machine: "systemd",
		scripts: []string{"systemd", "pinned-near"},
	}, {
		machine: "v1",
		scripts: []string{"pinning"},
	}, {
		machine: "v2",
		scripts: []string{"pinning", "pinned-options"},
	}, {
		machine: "v1", plain: true,
		scripts: []string{"bounds", "drift", "resize"},
		units:   []string{"pod/steps/cgroup"},
	}}
}

// anywhere lists the scripts and packages that need nothing of a machine but its version of cgroups. A host that has
// this version runs them itself.
var anywhere = []string{"drift", "resize", "pod/steps/cgroup"}

// beyond returns the boots without what a host with this version of cgroups, v1 or v2, shows itself.
func beyond(host string, all []boot) []boot {
	shown := func(name string) bool { return slices.Contains(anywhere, name) }
	for i, b := range all {
		if b.machine == host {
			all[i].scripts = slices.DeleteFunc(b.scripts, shown)
			all[i].units = slices.DeleteFunc(b.units, shown)
		}
	}
	return all
}

// cgroupsOfHost returns the version of the host's cgroups, v1 or v2.
func cgroupsOfHost() string {
	if cgroups.IsCgroup2UnifiedMode() {
		return "v2"
	}
	return "v1"
}

// longBoots lists the scripts that run with -long instead: each takes minutes.
func longBoots() []boot {
	eviction := []string{"eviction", "eviction-many", "eviction-disk", "eviction-images", "eviction-pids",
		"eviction-disk-stuck", "pressure", "storage"}
	joined := []string{"e2e/eviction", "e2e/eviction-disk", "e2e/eviction-pids"}
	return []boot{
		{machine: "v2", scripts: append([]string{"volumes-iscsi"}, eviction...), alone: []string{"machine-oom"},
			outside: []string{"eviction-frozen"}, e2e: append([]string{"e2e/quota"}, joined...),
			units: []string{"node/eviction/alarm -test.run=Unified"}},
		{machine: "v1", scripts: eviction, outside: []string{"eviction-frozen"}, e2e: joined},
		{machine: "systemd", scripts: []string{"quota-ext4"}, outside: []string{"systemd-containerd"},
			alone: []string{"installed"}, units: []string{"base/quota -files=1000000"}},
		{machine: "debian", plain: true, e2e: []string{"e2e/checkpoint"}},
	}
}

// limit is how long one boot may take. A quiet machine of two cores needs less than half of it. A program of tests that
// takes the time of testLimit shows what it waits for, which needs a guest that still works.
const (
	limit     = 30 * time.Minute
	testLimit = "-test.timeout=25m"
)

func run(ctx context.Context) (err error) {
	kernel := flag.String("kernel", "", "`directory` of an unpacked linux-image package")
	systemd := flag.String("systemd", "", "`directory` of the unpacked packages of systemd and D-Bus")
	tools := flag.String("tools", "", "`directory` of the unpacked packages of iSCSI")
	debian := flag.String("debian", "", "`archive` of the root directory of a Debian with systemd")
	machine := flag.String("machine", "", "start only the `machine` v1, v2, systemd or debian (default all)")
	only := flag.String("run", "", "run only the scripts and packages that match this `regexp`")
	beside := flag.Int("beside", 2, "how many machines run at the same time; each takes up to 4 GiB of memory")
	long := flag.Bool("long", false, "run the scripts that take minutes each, instead of the others")
	patience := flag.Duration("patience", 5*time.Minute, "how long a script waits for a condition before it fails")
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
	all := boots()
	switch {
	case *long:
		all = longBoots()
	case *only == "": // a script that is asked for by name runs anyway
		all = beyond(cgroupsOfHost(), all)
	}
	var chosen []started
	for _, b := range all {
		commands := b.commands(match, *patience)
		if (*machine == "" || *machine == b.machine) && len(commands) > 0 {
			chosen = append(chosen, started{b, commands})
		}
	}
	err = makeTestDisks(ctx, dir, chosen, map[string]image{
		smallRoot: {systemd: *systemd, tools: *tools, programs: programs}, debianRoot: {debian: *debian},
	})
	if err != nil {
		return fmt.Errorf("make the disk: %w", err)
	}
	return startAll(ctx, chosen, *beside, func(ctx context.Context, s started) error {
		return bounded(ctx, s.name(), func(ctx context.Context) error {
			return s.start(ctx, amd64(*kernel), filepath.Join(dir, s.root()), s.commands)
		})
	})
}

// started is a boot with the commands for the guest.
type started struct {
	boot
	commands []command
}

// The root directories of machines that run tests, which are also the names of their disks.
const (
	smallRoot  = "small"
	debianRoot = "debian"
)

// name tells the boots of a machine apart.
func (b boot) name() string {
	if b.plain {
		return b.machine + "-plain"
	}
	return b.machine
}

// root returns the root directory of the machine.
func (b boot) root() string {
	if b.machine == "debian" {
		return debianRoot
	}
	return smallRoot
}

// makeTestDisks makes a disk in dir for each root directory that a machine needs.
func makeTestDisks(ctx context.Context, dir string, all []started, roots map[string]image) error {
	parts, err := testParts()
	if err != nil {
		return err
	}
	for name, content := range roots {
		if !slices.ContainsFunc(all, func(s started) bool { return s.root() == name }) {
			continue
		}
		if name == debianRoot && content.debian == "" {
			return errors.New("the complete Debian has no root directory: name an archive with -debian")
		}
		content.parts = parts
		if err := makeDisk(ctx, filepath.Join(dir, name), content); err != nil {
			return err
		}
	}
	return nil
}

// testParts lists the files and directories of this repository that tests need.
func testParts() ([]string, error) {
	parts, err := filepath.Glob("bin/vm/*.test")
	parts = append(parts, "bin/vm/vm", "bin/berth", "internal/cli/setup/berth.service", "bin/workload.tar",
		"bin/guestbook.tar", "bin/cluster", "bin/vm/cni", "bin/vm/packages", "docs/install.md", "docs/tutorial.md",
		"examples", "go.mod", "test/script", "test/e2e")
	for _, b := range slices.Concat(boots(), longBoots()) {
		for _, unit := range b.units {
			unit, _, _ = strings.Cut(unit, " ")
			dir := filepath.Join("internal", unit, "testdata")
			if !slices.Contains(parts, dir) {
				parts = append(parts, dir)
			}
		}
	}
	return parts, err
}

// startAll starts all boots, at most beside of them at the same time, and returns the errors of all.
func startAll(ctx context.Context, all []started, beside int, start func(context.Context, started) error) error {
	var group errgroup.Group
	group.SetLimit(beside)
	failed := make([]error, len(all))
	for i, b := range all {
		group.Go(func() error {
			if ctx.Err() == nil {
				failed[i] = start(ctx, b)
			}
			return nil
		})
	}
	err := group.Wait()
	return errors.Join(append(failed, err)...)
}

// bounded starts a machine, ends it when it takes longer than limit, and prints how long it took.
func bounded(ctx context.Context, name string, start func(context.Context) error) error {
	// qemu ends with the thread that started it (Pdeathsig). The thread ends with this goroutine if it stays locked.
	runtime.LockOSThread()
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := start(ctx)
	if ctx.Err() == context.DeadlineExceeded {
		err = fmt.Errorf("machine did not finish within %v: %w", limit, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	fmt.Printf("ok    %s  %.0fs\n", name, time.Since(began).Seconds())
	return nil
}

// commands returns the guest's commands for the scripts and packages of a boot that match.
func (b boot) commands(match *regexp.Regexp, patience time.Duration) []command {
	matching := func(names []string) []string {
		return slices.DeleteFunc(names, func(n string) bool { return !match.MatchString(n) })
	}
	var all []command
	for _, unit := range matching(b.units) {
		path, flags, _ := strings.Cut(unit, " ")
		all = append(all, command{
			Dir: "/berth/internal/" + path,
			Args: append([]string{"/berth/bin/vm/" + filepath.Base(path) + ".test", "-test.v=test2json",
				testLimit}, strings.Fields(flags)...),
		})
	}
	run := func(test, runtime string, names ...string) {
		if len(names) == 0 {
			return
		}
		all = append(all, command{
			Cluster: test == "TestE2E",
			Dir:     "/berth/test",
			Args: []string{"/berth/bin/vm/test.test", "-test.v=test2json", testLimit, "-test.parallel=2",
				"-patience=" + patience.String(),
				"-test.run=^" + test + "$/^" + runtime + "$/^(" +
					strings.ReplaceAll(strings.Join(names, "|"), "e2e/", "") + ")$"},
		})
	}
	run("TestScript", "embedded", matching(b.scripts)...)
	run("TestScript", "containerd", matching(b.outside)...)
	// Scripts with a control plane run before those in alone, which change the guest's clock.
	// One after the other, since they share a control plane and the name of a node.
	for _, name := range matching(b.e2e) {
		run("TestE2E", "embedded", name)
	}
	for _, name := range matching(b.alone) {
		run("TestScript", "embedded", name)
	}
	return all
}
