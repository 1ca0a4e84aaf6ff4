package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
)

// start boots the machine, prints the results of its tests and waits until it is off.
func (b boot) start(ctx context.Context, on platform, disk string, commands []command) (err error) {
	j := job{Machine: b.machine, Commands: commands}
	var network []string
	if slices.ContainsFunc(commands, func(c command) bool { return c.Cluster }) {
		c, failed := startControlPlane(ctx)
		if failed != nil {
			return fmt.Errorf("start a control plane: %w", failed)
		}
		defer func() { err = errors.Join(err, c.stop()) }()
		j.Cluster = string(c.remote)
		if network, err = c.network(); err != nil {
			return err
		}
	}
	initrd := disk + "." + b.name()
	if err := initramfs(initrd, on, j); err != nil {
		return fmt.Errorf("make the initramfs: %w", err)
	}
	qemu, console, err := startMachine(ctx, on, initrd, disk, append(b.topology(), network...)...)
	if err != nil {
		return err
	}
	return newTranscript(os.Stdout, b.name()).follow(qemu, console)
}

// follow reads the console until the machine is off. It returns an error if the guest reported one, or did not finish
// its commands.
func (t *transcript) follow(qemu *exec.Cmd, console io.Reader) (err error) {
	for lines := bufio.NewReader(console); err == nil; {
		var line string
		if line, err = lines.ReadString('\n'); line != "" {
			t.line(line)
		}
	}
	if err := qemu.Wait(); err != nil {
		t.rest()
		return fmt.Errorf("the machine stopped: %w", err)
	}
	if !t.done {
		t.rest()
		return errors.New("the machine stopped before its tests ended: the kernel panicked")
	}
	if len(t.wrong) > 0 {
		return fmt.Errorf("failed or skipped: %q", t.wrong)
	}
	return nil
}

// topology returns the options for the CPUs and the NUMA nodes. The machine systemd has nodeCount nodes in one socket,
// and a last-level cache for each pair of CPUs. The nodes 0 to 2 have CPUs, and the nodes 0 and 2 are the nearest ones.
// The machines v1 and v2 have two nodes, each a socket with a cache, and cores with two threads.
func (b boot) topology() []string {
	switch {
	case b.plain:
		return []string{"-smp", "2", "-m", "4G"}
	case b.machine == "v1" || b.machine == "v2":
		return []string{
			"-smp", "8,sockets=2,cores=2,threads=2", "-m", "4G",
			"-object", "memory-backend-ram,id=m0,size=2G", "-numa", "node,nodeid=0,cpus=0-3,memdev=m0",
			"-object", "memory-backend-ram,id=m1,size=2G", "-numa", "node,nodeid=1,cpus=4-7,memdev=m1"}
	}
	options := []string{
		"-smp", "8,sockets=1,dies=4,cores=2,threads=1", "-m", "4G",
		"-object", "memory-backend-ram,id=m0,size=1280M", "-numa", "node,nodeid=0,cpus=0-3,memdev=m0",
		"-object", "memory-backend-ram,id=m1,size=1G", "-numa", "node,nodeid=1,cpus=4-5,memdev=m1",
		"-object", "memory-backend-ram,id=m2,size=1G", "-numa", "node,nodeid=2,cpus=6-7,memdev=m2",
	}
	for n := 3; n < nodeCount; n++ {
		options = append(options, "-object", fmt.Sprintf("memory-backend-ram,id=m%d,size=128M", n),
			"-numa", fmt.Sprintf("node,nodeid=%[1]d,memdev=m%[1]d", n))
	}
	for a := range nodeCount {
		for b := a + 1; b < nodeCount; b++ {
			distance := 40
			if a == 0 && b == 2 {
				distance = 12
			}
			options = append(options, "-numa", fmt.Sprintf("dist,src=%d,dst=%d,val=%d", a, b, distance))
		}
	}
	return options
}

// nodeCount is how many NUMA nodes the machine systemd has: one more than the topology policies accept by default.
const nodeCount = 9

// platform is a processor architecture with the kernel that a machine boots.
type platform struct {
	init    string   // this program, built for the architecture
	kernel  string   // the directory of an unpacked linux-image package
	qemu    string   // the program that emulates the architecture
	options []string // options of that program: the board, the processor and the kernel's console
	append  string   // options of the kernel, beside those that every kernel has
}

func amd64(kernel string) platform {
	return platform{init: "/proc/self/exe", kernel: kernel, qemu: "qemu-system-x86_64",
		// qemu emulates threads only for CPUs of Intel. Without ERMS and FSRM the kernel copies words; an emulated
		// rep movsb would copy byte by byte.
		options: []string{"-machine", "q35", "-cpu", "max,la57=off,erms=off,fsrm=off,vendor=GenuineIntel"},
		// The TSC is the only clock that is not a slow device. On a busy host the timer interrupts may come too late
		// for the check of the timer, after which the kernel panics.
		append: "console=ttyS0 tsc=reliable no_timer_check" + rateOfTSC()}
}

// arm64 has a processor without pointer authentication, which takes most of the time where it is emulated.
func arm64(kernel string) platform {
	return platform{init: "bin/arm64/vm", kernel: kernel, qemu: "qemu-system-aarch64",
		options: []string{"-machine", "virt,gic-version=3", "-cpu", "cortex-a72"}, append: "console=ttyAMA0"}
}

// startMachine starts qemu and returns the guest's console. Writes of the guest do not change the file disk.
func startMachine(ctx context.Context, on platform, initrd, disk string, more ...string) (*exec.Cmd, io.Reader,
	error) {
	images, err := filepath.Glob(filepath.Join(on.kernel, "boot/vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return nil, nil, fmt.Errorf("%d kernels in %q: name an unpacked linux-image package with -kernel", len(images),
			on.kernel)
	}
	args := []string{"-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio", "-accel", "tcg,thread=multi",
		"-drive", "if=virtio,format=raw,snapshot=on,file=" + disk,
		"-kernel", images[0], "-initrd", initrd,
		// Emulated CPUs wait long for each other, which the kernel must not report as a lockup. Without randomized
		// addresses, qemu translates the same code only once.
		"-append", "quiet panic=-1 nowatchdog mitigations=off norandmaps apparmor=1 security=apparmor " +
			"rcupdate.rcu_cpu_stall_suppress=1 " + on.append}
	qemu := exec.CommandContext(ctx, on.qemu, slices.Concat(args, on.options, more)...)
	qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	qemu.Stderr = os.Stderr
	console, err := qemu.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := qemu.Start(); err != nil {
		return nil, nil, fmt.Errorf("%w: hack/setup.sh installs it", err)
	}
	return qemu, console, nil
}
