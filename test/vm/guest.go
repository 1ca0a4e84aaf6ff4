package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The guest's own messages on the console begin with guestPrefix. They are errors and, at the end, guestDone.
const (
	guestPrefix = "vm guest: "
	guestDone   = "done"
)

const (
	// asService is the argument of this program when systemd starts it. The program then runs the job at serviceJob.
	asService  = "guest"
	serviceJob = "/berth/job"
)

// guest is process 1 of the machine: it prepares the machine for an agent, runs the job and powers the machine off. On
// a machine with systemd, guest replaces itself by systemd, which starts this program again to run the job.
func guest() {
	report := func(text string) { fmt.Println(guestPrefix + strings.ReplaceAll(text, "\n", "; ")) }
	if err := work(); err != nil {
		report(err.Error())
	}
	report(guestDone)
	report(fmt.Sprint("power off the machine: ", unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)))
}

func work() error {
	if os.Getpid() != 1 {
		j, err := readJob(serviceJob)
		if err != nil {
			return err
		}
		return j.run()
	}
	j, err := readJob("/job")
	if err != nil {
		return err
	}
	for _, name := range j.Modules {
		if err := load("/" + name + ".ko"); err != nil {
			return err
		}
	}
	if err := enter(); err != nil {
		return err
	}
	if j.Cluster != "" {
		if err := errors.Join(up("eth0", guestIP), nameControlPlane()); err != nil {
			return err
		}
	}
	if j.Machine == "systemd" || j.Machine == "debian" {
		return startSystemd(j)
	}
	if err := mountAll(j.Machine); err != nil {
		return err
	}
	if err := prepare(); err != nil {
		return err
	}
	return j.run()
}

func readJob(path string) (j job, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return j, err
	}
	return j, json.Unmarshal(text, &j)
}

// startSystemd replaces this process by systemd, which starts this program again as vm.service.
func startSystemd(j job) error {
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	if err := os.WriteFile(serviceJob, text, 0o644); err != nil {
		return err
	}
	const systemd = "/lib/systemd/systemd"
	if err := unix.Exec(systemd, []string{systemd, "--unit=vm.service"}, nil); err != nil {
		return fmt.Errorf("start %s: %w", systemd, err)
	}
	return nil
}

func (j job) run() error {
	var all error
	for _, c := range j.Commands {
		if err := c.run(j.Cluster); err != nil {
			all = errors.Join(all, fmt.Errorf("%s: %w", filepath.Base(c.Args[0]), err))
		}
	}
	return all
}

func load(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.FinitModule(int(file.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load %s: %w", path, err)
	}
	return nil
}

// enter makes the disk the root directory. The initramfs cannot stay the root directory: pivot_root(2) fails there, so
// containers could not start, and overlay file systems do not work on it.
func enter() error {
	for _, dir := range []string{"/dev", "/disk"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := mount("devtmpfs", "/dev", "devtmpfs", ""); err != nil {
		return err
	}
	if err := mount("/dev/vda", "/disk", "ext4", ""); err != nil {
		return err
	}
	if err := unix.Mount("/dev", "/disk/dev", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move /dev: %w", err)
	}
	if err := os.Chdir("/disk"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	return os.Chdir("/")
}

func mount(source, at, kind, options string) error {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(source, at, kind, 0, options); err != nil {
		return fmt.Errorf("mount %s at %s: %w", kind, at, err)
	}
	return nil
}

// hierarchies are the hierarchies of cgroup v1 as systemd mounts them.
const hierarchies = "cpuset cpu,cpuacct blkio memory devices freezer net_cls,net_prio perf_event hugetlb pids rdma misc"

func mountAll(cgroup string) error {
	type entry struct{ source, at, kind, options string }
	all := []entry{
		{"proc", "/proc", "proc", ""}, {"sysfs", "/sys", "sysfs", ""},
		{"devpts", "/dev/pts", "devpts", "gid=5,mode=620,ptmxmode=666"},
		{"tmpfs", "/dev/shm", "tmpfs", ""}, {"mqueue", "/dev/mqueue", "mqueue", ""},
		{"hugetlbfs", "/dev/hugepages", "hugetlbfs", ""},
		{"tmpfs", "/run", "tmpfs", "mode=755"}, {"securityfs", "/sys/kernel/security", "securityfs", ""},
	}
	if cgroup == "v2" {
		all = append(all, entry{"cgroup2", "/sys/fs/cgroup", "cgroup2", "nsdelegate,memory_recursiveprot"})
	} else {
		all = append(all, entry{"tmpfs", "/sys/fs/cgroup", "tmpfs", "mode=755"},
			entry{"cgroup", "/sys/fs/cgroup/systemd", "cgroup", "none,name=systemd"})
		for h := range strings.FieldsSeq(hierarchies) {
			all = append(all, entry{"cgroup", "/sys/fs/cgroup/" + h, "cgroup", h})
		}
	}
	for _, m := range all {
		if err := mount(m.source, m.at, m.kind, m.options); err != nil {
			return err
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil { // as systemd does
		return fmt.Errorf("share mounts: %w", err)
	}
	if cgroup == "v2" {
		return leaveRootCgroup()
	}
	for h := range strings.FieldsSeq(hierarchies) {
		for controller := range strings.SplitSeq(h, ",") {
			if err := os.Symlink(h, "/sys/fs/cgroup/"+controller); err != nil && controller != h {
				return err
			}
		}
	}
	return nil
}

// leaveRootCgroup moves this process, and so its children, to a cgroup like a service's. Programs read the kernel's
// features from the files of their cgroup, and the root cgroup has the fewest files.
func leaveRootCgroup() error {
	const root, own = "/sys/fs/cgroup/", "/sys/fs/cgroup/vm.service/"
	if err := os.WriteFile(root+"cgroup.subtree_control", []byte("+cpuset +cpu +io +memory +hugetlb +pids"),
		0); err != nil {
		return err
	}
	if err := os.Mkdir(own, 0o755); err != nil {
		return err
	}
	return os.WriteFile(own+"cgroup.procs", []byte("0"), 0)
}

// prepare does the rest of Debian's work before services start: the host name, links in /dev, /tmp and loopback.
func prepare() error {
	if err := unix.Sethostname([]byte("vm")); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	for link, target := range map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0", "/dev/stdout": "/proc/self/fd/1",
		"/dev/stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, link); err != nil {
			return err
		}
	}
	if err := os.Chmod("/tmp", 0o777|os.ModeSticky); err != nil {
		return err
	}
	return up("lo", "127.0.0.1")
}

// up gives a network interface an address, with the netmask of its class, and brings it up.
func up(name, address string) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		err = request.SetInet4Addr(net.ParseIP(address).To4())
	}
	if err == nil {
		err = unix.IoctlIfreq(socket, unix.SIOCSIFADDR, request)
	}
	if err == nil {
		request.SetUint16(unix.IFF_UP)
		err = unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
	}
	if err = errors.Join(err, unix.Close(socket)); err != nil {
		return fmt.Errorf("bring up %s: %w", name, err)
	}
	return nil
}

// nameControlPlane makes the name known that kubeconfigs and certificates have for the API server.
func nameControlPlane() error {
	file, err := os.OpenFile("/etc/hosts", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, "%s kubernetes\n", controlPlaneIP)
	return errors.Join(err, file.Close())
}

// run runs a command and waits for it, and for every orphan that ends meanwhile. cluster is a kubeapitest.Remote as
// JSON, or empty.
func (c command) run(cluster string) error {
	cmd := exec.CommandContext(context.Background(), c.Args[0], c.Args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.Dir, os.Stdout, os.Stderr
	// The host has two CPUs. Eight emulated CPUs that all look for goroutines would use most of their time.
	cmd.Env = []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/root", "TMPDIR=/tmp", "GOMAXPROCS=2",
		"BERTH_TEST_VM=1", "BERTH_TEST_CLUSTER=" + cluster}
	if err := cmd.Start(); err != nil {
		return err
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait: %w", err)
		case pid == cmd.Process.Pid && status.ExitStatus() != 0:
			return fmt.Errorf("exit status %d", status.ExitStatus())
		case pid == cmd.Process.Pid:
			return nil
		}
	}
}
