package disk

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

// mountTimeout bounds mount(2) of a device, which may have a long journal to replay.
const mountTimeout = 5 * time.Minute

// busyPatience bounds how long a device may stay in use after it was unmounted. A container that starts at that moment
// has a copy of all mounts until it has left them. The kernel does not mount a device for writing while a read-only
// mount of it exists.
const busyPatience = 3 * time.Second

// Formatter formats and mounts devices. The zero value is ready to use.
type Formatter struct {
	// Runner calls mount(2).
	Runner mount.Runner
	// Exec runs mkfs, fsck and blkid. nil: the programs of this machine.
	Exec exec.Interface
}

// Disk describes the mount of one device.
type Disk struct {
	Device, Target string
	FSType         string // "" is the file system on the device, or ext4 on an empty one
	Options        []string
	// ReadOnly: this user only reads. Another user may write.
	ReadOnly bool
}

// Mount mounts the disk's file system on the target. As under the kubelet, it formats an empty device, and checks a
// file system (fsck -a) before a mount for writing. It does neither for a user that only reads. An existing read-only
// mount becomes writable with the first user that may write.
func (f Formatter) Mount(ctx context.Context, d Disk) error {
	o, err := mount.Parse(d.Options)
	if err != nil {
		return err
	}
	at, err := mount.At(d.Target)
	if err != nil {
		return err
	}
	if at != nil {
		if o.ReadOnly() || d.ReadOnly || !slices.Contains(strings.Split(at.Options, ","), "ro") {
			return nil
		}
		return f.Runner.Mount(ctx,
			mount.Call{Source: d.Device, Target: d.Target, Flags: o.Flags | unix.MS_REMOUNT,
				Data: strings.Join(o.Data, ",")})
	}
	if strings.ContainsFunc(d.FSType, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }) {
		return fmt.Errorf("fsType %q of the volume: not the name of a file system such as ext4 or xfs", d.FSType)
	}
	options := d.Options
	if o.ReadOnly() || d.ReadOnly {
		options = append(slices.Clone(options), "ro") // mount-utils needs the option as a separate word
	}
	programs := &programs{Interface: f.Exec, ctx: ctx}
	if programs.Interface == nil {
		programs.Interface = exec.New()
	}
	kernel := &kernel{ctx: ctx, runner: f.Runner}
	mounter := mountutils.NewSafeFormatAndMount(kernel, programs)
	fsType := d.FSType
	if fsType == "" { // Kubernetes' default: the file system on the device
		if fsType, err = mounter.GetDiskFormat(d.Device); err != nil {
			return programs.explain(d.Device, fmt.Errorf("look for a file system on %s: %w", d.Device, err))
		}
		if strings.Contains(fsType, "partitions") {
			return fmt.Errorf("%s has a partition table: name one of its partitions, or use volumeMode: Block",
				d.Device)
		}
	}
	err = mounter.FormatAndMount(d.Device, d.Target, fsType, options)
	if kernel.damaged {
		return fmt.Errorf("the file system of %s is damaged, and the kernel does not mount it: repair it by hand: %w",
			d.Device, err)
	}
	return programs.explain(d.Device, err)
}

// kernel is the interface through which mount-utils mounts. It calls the kernel instead of mount(8). FormatAndMount
// needs only this method.
type kernel struct {
	mountutils.Interface                 // nil
	ctx                  context.Context //nolint:containedctx // the interface has none
	runner               mount.Runner
	// damaged: the kernel found damage that fsck -a did not look for, because the superblock says that the file system
	// is clean. mount-utils keeps only the text of the kernel's error.
	damaged bool
}

func (k *kernel) MountSensitive(source, target, fsType string, options, sensitive []string) error {
	o, err := mount.Parse(slices.Concat(options, sensitive))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(k.ctx, mountTimeout, fmt.Errorf("no answer in %s", mountTimeout))
	defer cancel()
	call := mount.Call{Source: source, Target: target, Type: fsType, Flags: o.Flags, Data: strings.Join(o.Data, ",")}
	for giveUp := time.Now().Add(busyPatience); ; {
		err := k.runner.Mount(ctx, call)
		// ext4 and xfs call these two EFSCORRUPTED and EFSBADCRC.
		k.damaged = errors.Is(err, unix.EUCLEAN) || errors.Is(err, unix.EBADMSG)
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

// programs runs programs until ctx ends, and remembers a program that is not installed.
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

// explain adds the next step to an error of mount-utils.
func (p *programs) explain(device string, err error) error {
	if err == nil {
		return nil
	}
	if p.ctx.Err() != nil {
		return fmt.Errorf("mount %s: %w", device, context.Cause(p.ctx))
	}
	if p.missing != "" && p.missing != "fsck" {
		return fmt.Errorf("%s is not installed, and %s needs it: install it (%s): %w", p.missing, device,
			packageOf(p.missing), err)
	}
	if e, ok := errors.AsType[mountutils.MountError](err); ok {
		switch e.Type {
		case mountutils.UnformattedReadOnly:
			return fmt.Errorf("%s has no file system, and a read-only volume is not formatted: %w", device, err)
		case mountutils.FilesystemMismatch:
			return fmt.Errorf("%s has other content than the volume's fsType, and is left as it is: %w", device,
				err)
		case mountutils.HasFilesystemErrors:
			return fmt.Errorf(
				"the file system of %s is damaged, and fsck -a cannot repair it: repair it by hand: %w", device, err)
		default: // the error says what failed
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
	return "the package that contains it"
}
