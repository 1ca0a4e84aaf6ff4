package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	device = "/dev/vdb"
	data   = "/data" // where the file system of the disk is mounted
	root   = data + "/berth"
	filler = data + "/filler"
	probe  = data + "/probe"
	// journalSectors is the size of the journal, which is on a part of the disk of its own: ext4 ends for good when it
	// cannot write its journal, so only a disk that fails elsewhere can become good again.
	journalSectors = 64 << 11
)

// faults lists how the disk can fail.
func faults() []string { return []string{faultFull, faultWrites, faultAll, faultDead} }

const (
	faultFull   = "full"   // no space left
	faultWrites = "writes" // EIO for each write, without the journal (dm-flakey)
	faultAll    = "all"    // EIO for each read and write, without the journal (dm-error)
	faultDead   = "dead"   // EIO for everything, until the power goes
)

// disk is the disk with the agent's root, behind device-mapper.
type disk struct {
	sectors int64
}

func command(name string, args ...string) error {
	out, err := exec.CommandContext(context.Background(), name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %q: %w: %s", name, args, err, out)
	}
	return nil
}

// mount mounts the disk after a check, as a machine does when it boots. If it is new, mount makes its file system.
func (d *disk) mount(isNew bool) error {
	text, err := os.ReadFile("/sys/class/block/" + filepath.Base(device) + "/size")
	if err != nil {
		return err
	}
	if d.sectors, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err != nil {
		return err
	}
	d.sectors -= journalSectors
	for _, part := range []string{"data", "journal"} {
		err := command("dmsetup", "create", part, "--noudevsync", "--table", d.table(part, "linear"))
		if err != nil {
			return err
		}
	}
	if isNew {
		err := errors.Join(command("mke2fs", "-q", "-O", "journal_dev", "-b", "4096", "/dev/dm-1"),
			command("mke2fs", "-q", "-t", "ext4", "-b", "4096", "-m", "0", "-J", "device=/dev/dm-1", "/dev/dm-0"))
		if err != nil {
			return err
		}
	}
	// A disk that refused writes leaves inodes of deleted files that -p does not repair.
	if err := command("e2fsck", "-y", "-j", "/dev/dm-1", "/dev/dm-0"); err != nil {
		if status, ok := errors.AsType[*exec.ExitError](err); !ok || status.ExitCode() > 1 { // 1: repaired
			return err
		}
	}
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("/dev/dm-0", data, "ext4", 0, "errors=continue,journal_path=/dev/dm-1"); err != nil {
		return fmt.Errorf("mount the disk: %w", err)
	}
	return nil
}

// lost reports whether a fault makes the kernel lose writes.
func (*disk) lost(fault string) bool { return fault == faultWrites || fault == faultAll }

// readOnly reports whether the file system takes no writes any more. Its flags do not say so with errors=continue.
func (d *disk) readOnly() bool {
	err := unix.Mkdir(probe, 0o700)
	if err == nil {
		err = unix.Rmdir(probe)
	}
	return errors.Is(err, unix.EROFS)
}

func (d *disk) unmount() error { return unix.Unmount(data, unix.MNT_DETACH) }

// table is how device-mapper makes a part of the disk.
func (d *disk) table(part, target string) string {
	length, start := d.sectors, int64(journalSectors)
	if part == "journal" {
		length, start = journalSectors, 0
	}
	switch target {
	case "error":
		return fmt.Sprintf("0 %d error", length)
	case "flakey": // up for no second, then down for an hour: each write fails
		return fmt.Sprintf("0 %d flakey %s %d 0 3600 1 error_writes", length, device, start)
	}
	return fmt.Sprintf("0 %d linear %s %d", length, device, start)
}

func (d *disk) become(part, target string) error {
	if err := command("dmsetup", "suspend", "--noflush", "--nolockfs", "--noudevsync", part); err != nil {
		return err
	}
	err := command("dmsetup", "load", part, "--table", d.table(part, target))
	return errors.Join(err, command("dmsetup", "resume", "--noudevsync", part))
}

func (d *disk) fail(fault string) error {
	switch fault {
	case faultFull:
		return d.fill()
	case faultWrites:
		return d.become("data", "flakey")
	case faultAll:
		return d.become("data", "error")
	case faultDead:
		return errors.Join(d.become("data", "error"), d.become("journal", "error"))
	}
	return fmt.Errorf("the disk cannot fail by %q: there are %q", fault, faults())
}

// fill takes all room of the file system.
func (d *disk) fill() error {
	file, err := os.OpenFile(filler, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	size, left := int64(0), int64(1)<<30
	for left >= 4096 {
		err = unix.Fallocate(int(file.Fd()), 0, size, left)
		switch {
		case err == nil:
			size += left
		case errors.Is(err, unix.ENOSPC):
			left /= 2
		default:
			return errors.Join(fmt.Errorf("fill the disk: %w", err), file.Close())
		}
	}
	return file.Close()
}

// recover ends a fault, except for a dead disk.
func (d *disk) recover(fault string) error {
	if fault == faultFull {
		return os.Remove(filler)
	}
	return d.become("data", "linear")
}
