package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"
	"k8s.io/utils/exec"

	"github.com/berth-run/berth/internal/base/mount"
)

// mountTimeout bounds mount(2) of a device: a journal may be long.
const mountTimeout = 5 * time.Minute

// busyPatience is for how long a device may still be in use after it was
// unmounted: a container that starts at that moment has a copy of all mounts until
// it has left them, and the kernel does not mount for writing what is still mounted
// for reading there.
const busyPatience = 3 * time.Second

// Formatter mounts devices. The zero value is ready.
type Formatter struct {
	// Runner calls mount(2).
	Runner mount.Runner
	// Exec runs mkfs, fsck and blkid; nil: those of this machine.
	Exec exec.Interface
}

// disk is one device to be mounted.
type disk struct {
	device, target string
	fsType         string // "" is ext4
	options        []string
	// readOnly: who asks only reads. Others may want to write.
	readOnly bool
}

// mount mounts the disk's file system on the target. As under the kubelet one
// that is empty gets a file system, and one that may be written to is checked
// (fsck -a) first; neither happens when it is only read. What is mounted already
// stays, and may be written to as soon as one user may.
func (f Formatter) mount(ctx context.Context, d disk) error {
	o, err := mount.Parse(d.options)
	if err != nil {
		return err
	}
	at, err := mount.At(d.target)
	if err != nil {
		return err
	}
	if at != nil {
		if o.ReadOnly() || d.readOnly || !slices.Contains(strings.Split(at.Options, ","), "ro") {
			return nil
		}
		return f.Runner.Mount(ctx,
			mount.Call{Source: d.device, Target: d.target, Flags: o.Flags | unix.MS_REMOUNT,
				Data: strings.Join(o.Data, ",")})
	}
	if strings.ContainsFunc(d.fsType, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }) {
		return fmt.Errorf("fsType %q of the local volume: it is the name of a file system, as ext4 or xfs", d.fsType)
	}
	options := d.options
	if o.ReadOnly() || d.readOnly {
		options = append(slices.Clone(options), "ro") // a word of its own, by which mount-utils knows it
	}
	programs := &programs{Interface: f.Exec, ctx: ctx}
	if programs.Interface == nil {
		programs.Interface = exec.New()
	}
	mounter := mountutils.NewSafeFormatAndMount(kernel{ctx: ctx, runner: f.Runner}, programs)
	fsType := d.fsType
	if fsType == "" { // what is there, as the API has it
		if fsType, err = mounter.GetDiskFormat(d.device); err != nil {
			return programs.explain(d.device, fmt.Errorf("look for a file system on %s: %w", d.device, err))
		}
		if strings.Contains(fsType, "partitions") {
			return fmt.Errorf("%s has a partition table: name one of its partitions, or use volumeMode: Block",
				d.device)
		}
	}
	return programs.explain(d.device, mounter.FormatAndMount(d.device, d.target, fsType, options))
}

// kernel has mount-utils mount by the kernel and not by mount(8). To format and
// mount it needs no more of the interface than this one method.
type kernel struct {
	mountutils.Interface                 // nil
	ctx                  context.Context //nolint:containedctx // the interface has none
	runner               mount.Runner
}

func (k kernel) MountSensitive(source, target, fsType string, options, sensitive []string) error {
	o, err := mount.Parse(slices.Concat(options, sensitive))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(k.ctx, mountTimeout, fmt.Errorf("no answer in %s", mountTimeout))
	defer cancel()
	call := mount.Call{Source: source, Target: target, Type: fsType, Flags: o.Flags, Data: strings.Join(o.Data, ",")}
	for giveUp := time.Now().Add(busyPatience); ; {
		err := k.runner.Mount(ctx, call)
		if !errors.Is(err, unix.EBUSY) || time.Now().After(giveUp) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// programs runs programs until ctx ends, and remembers one that is not there.
type programs struct {
	exec.Interface
	ctx context.Context //nolint:containedctx // the interface has none

	mu      sync.Mutex
	missing string
}

func (p *programs) Command(name string, args ...string) exec.Cmd {
	if _, err := p.LookPath(name); err != nil {
		p.mu.Lock()
		p.missing = name
		p.mu.Unlock()
	}
	return p.CommandContext(p.ctx, name, args...)
}

// explain says what to do about an error of mount-utils.
func (p *programs) explain(device string, err error) error {
	if err == nil {
		return nil
	}
	if p.ctx.Err() != nil {
		return fmt.Errorf("mount %s: %w", device, context.Cause(p.ctx))
	}
	if p.missing != "" && p.missing != "fsck" {
		return fmt.Errorf("%s is not on this machine, and %s needs it: install it (%s): %w", p.missing, device,
			packageOf(p.missing), err)
	}
	if e, ok := errors.AsType[mountutils.MountError](err); ok {
		switch e.Type {
		case mountutils.UnformattedReadOnly:
			return fmt.Errorf("%s has no file system, and none is made for who only reads: %w", device, err)
		case mountutils.FilesystemMismatch:
			return fmt.Errorf("%s holds something else than the volume's fsType says; it is left as it is: %w", device,
				err)
		case mountutils.HasFilesystemErrors:
			return fmt.Errorf(
				"the file system of %s is damaged, and fsck -a could not repair it: repair it by hand: %w", device, err)
		default: // which says what was done
		}
	}
	return err
}

func packageOf(program string) string {
	switch {
	case program == "blkid":
		return "util-linux"
	case strings.HasPrefix(program, "mkfs.ext"):
		return "e2fsprogs"
	case program == "mkfs.xfs":
		return "xfsprogs"
	case program == "mkfs.btrfs":
		return "btrfs-progs"
	}
	return "the package that has it"
}
