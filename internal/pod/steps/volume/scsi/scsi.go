package scsi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"

	"github.com/berth-run/berth/internal/base/program"
	"github.com/berth-run/berth/internal/base/retry"
)

// appearTimeout bounds the wait for a disk after a scan. The kubelet waits as long.
const (
	appearTimeout = 10 * time.Second
	appearPause   = 100 * time.Millisecond
)

// toolTimeout bounds multipath(8) and blockdev(8), which write what is in memory to a disk that may be slow.
const toolTimeout = 2 * time.Minute

// Machine has the directories of the kernel's files. The zero value is this machine; tests name others.
type Machine struct {
	// Sys is /sys, and Dev is /dev.
	Sys, Dev string
}

// InSys returns a path below /sys.
func (m Machine) InSys(parts ...string) string { return below(m.Sys, "/sys", parts) }

// InDev returns a path below /dev.
func (m Machine) InDev(parts ...string) string { return below(m.Dev, "/dev", parts) }

func below(dir, usual string, parts []string) string {
	if dir == "" {
		dir = usual
	}
	return filepath.Join(append([]string{dir}, parts...)...)
}

// Scan lets the kernel look for disks of a SCSI host, such as host2. what is "CHANNEL TARGET LUN", and "-" stands for
// all numbers.
func (m Machine) Scan(host, what string) error {
	err := os.WriteFile(m.InSys("class/scsi_host", host, "scan"), []byte(what), 0)
	if err != nil {
		return fmt.Errorf("scan SCSI %s for disks: %w", host, err)
	}
	return nil
}

// Await calls find until it returns a disk, an error or the patience for a new disk ends.
func Await(ctx context.Context, find func() (string, error)) (string, error) {
	giveUp := time.Now().Add(appearTimeout)
	for {
		found, err := find()
		if found != "" || err != nil || time.Now().After(giveUp) {
			return found, err
		}
		if err := retry.Sleep(ctx, appearPause); err != nil {
			return "", err
		}
	}
}

// Multipath returns the multipath device that a disk is a path of, such as /dev/dm-0, or "" if there is none.
func (m Machine) Multipath(disk string) string {
	held, _ := filepath.Glob(m.InSys("block", filepath.Base(disk), "holders/dm-*")) // the pattern is valid
	for _, holder := range held {
		name := filepath.Base(holder)
		uuid, err := os.ReadFile(m.InSys("block", name, "dm/uuid"))
		if err == nil && strings.HasPrefix(string(uuid), "mpath-") {
			return m.InDev(name)
		}
	}
	return ""
}

// Remove removes a disk from the machine: of a multipath device, also the device and its other paths. A disk that is
// mounted stays, because another program uses it. A disk that is gone is no error.
func (m Machine) Remove(ctx context.Context, disk string) error {
	if target, err := filepath.EvalSymlinks(disk); err == nil {
		disk = target // a kubelet mounts a link of udev
	}
	disks := []string{disk}
	if at := m.Multipath(disk); at != "" {
		disk = at
	}
	if used, err := m.mounted(disk); used || err != nil {
		return err
	}
	if strings.HasPrefix(filepath.Base(disk), "dm-") {
		disks, _ = filepath.Glob(m.InSys("block", filepath.Base(disk), "slaves/*")) // the pattern is valid
		if _, err := program.Run(ctx, toolTimeout, "multipath", "-f", disk); err != nil {
			return fmt.Errorf("remove multipath device %s: %w", disk, err)
		}
	}
	var errs []error
	for _, d := range disks {
		errs = append(errs, m.removeOne(ctx, filepath.Base(d)))
	}
	return errors.Join(errs...)
}

func (m Machine) removeOne(ctx context.Context, name string) error {
	at := m.InSys("block", name, "device/delete")
	if _, err := os.Stat(at); err != nil {
		return nil //nolint:nilerr // the disk is gone, or it is no SCSI disk and stays
	}
	// Nothing of it is mounted, so that nothing waits to be written, unless a pod had the whole device.
	if _, err := program.Run(ctx, toolTimeout, "blockdev", "--flushbufs", m.InDev(name)); err != nil {
		return fmt.Errorf("write what is in memory to %s: %w", m.InDev(name), err)
	}
	if err := os.WriteFile(at, []byte("1"), 0); err != nil {
		return fmt.Errorf("remove disk %s: %w", name, err)
	}
	return nil
}

// mounted reports whether the disk's file system is mounted anywhere in this mount namespace.
func (m Machine) mounted(disk string) (bool, error) {
	text, err := os.ReadFile(m.InSys("block", filepath.Base(disk), "dev"))
	if err != nil {
		return false, nil //nolint:nilerr // the disk is gone
	}
	major, minor, _ := strings.Cut(strings.TrimSpace(string(text)), ":")
	mounts, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		return strconv.Itoa(i.Major) != major || strconv.Itoa(i.Minor) != minor, false
	})
	if err != nil {
		return false, fmt.Errorf("read the mount table: %w", err)
	}
	return len(mounts) > 0, nil
}
