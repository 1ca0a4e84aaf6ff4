package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// programs are the host's programs that scripts need. They are copied with their libraries.
const programs = `sh
	awk basename cat chmod chown cmp cp curl cut date dd df dirname uptime echo env false find grep head hostname id
	install kill du fallocate fsfreeze ps
	ln ls mkdir mkfifo mknod mktemp mv nproc printf readlink rm rmdir sed seq setsid sleep sort stat sync tail
	tee test timeout touch tr true uname uniq wc
	blkid blockdev dmesg losetup mkfs.ext4 mkfs.xfs xfs_quota mkswap mount pgrep pkill swapoff swapon sysctl taskset
	umount
	nft apparmor_parser
	dpkg dpkg-deb dpkg-query dpkg-split diff ldconfig start-stop-daemon tar
	containerd containerd-shim-runc-v2 ctr runc`

// toolPrograms are the programs that the packages of -tools have.
const toolPrograms = "sbin/iscsiadm sbin/iscsid"

// image is the content of the disk that the guest starts from.
type image struct {
	debian   string // the archive of a Debian's root directory, or empty for a small one with these parts:
	systemd  string // the directory of the unpacked packages of systemd and D-Bus, or empty
	tools    string // the directory of the unpacked packages with toolPrograms, or empty
	programs string
	parts    []string // the files and directories of this repository that the guest needs
}

// makeDisk writes an ext4 file system for the guest. /berth has the files of this repository, at the same paths.
func makeDisk(ctx context.Context, path string, content image) error {
	root := path + ".d"
	var elf []string
	var err error
	if content.debian != "" {
		err = unpack(ctx, content.debian, root)
	} else {
		elf, err = content.makeRoot(root)
	}
	if err != nil {
		return err
	}
	if err := copyTree("test/vm/etc/systemd", filepath.Join(root, "etc/systemd")); err != nil {
		return err
	}
	for _, part := range content.parts {
		if strings.HasSuffix(part, ".test") {
			elf = append(elf, part)
		}
		if err := copyTree(part, filepath.Join(root, "berth", part)); err != nil {
			return err
		}
	}
	if err := copyLibraries(ctx, content, elf, root); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-E", "lazy_itable_init=1",
		"-d", root, path, "4G").CombinedOutput()
	if err != nil {
		return fmt.Errorf("mke2fs: %w: %s", err, out)
	}
	return os.RemoveAll(root)
}

// unpack unpacks the archive of a root directory, with the owners of its files.
func unpack(ctx context.Context, archive, root string) error {
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "tar", "-x", "--numeric-owner", "--exclude=./dev/*", "-f", archive, "-C",
		root).CombinedOutput()
	if err != nil {
		return fmt.Errorf("unpack %s: %w: %s", archive, err, out)
	}
	return nil
}

// makeRoot makes the root directory of a small Debian. It returns the files whose libraries the guest needs.
func (content image) makeRoot(root string) (elf []string, err error) {
	systemd := content.systemd
	if systemd != "" {
		if err := os.CopyFS(root, os.DirFS(systemd)); err != nil {
			return nil, fmt.Errorf("copy the directory of -systemd: %w", err)
		}
	}
	if err := copyTree("test/vm/etc/apparmor", filepath.Join(root, "etc/apparmor")); err != nil {
		return nil, err
	}
	for _, dir := range []string{"bin", "dev", "etc", "proc", "root", "run", "sys", "tmp", "usr/local/bin",
		"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return nil, err
		}
	}
	for name, text := range map[string]string{
		"../var/lib/dpkg/status": "",
		"passwd":                 "root:x:0:0::/root:/bin/sh\nmessagebus:x:100:100::/:/bin/false\n",
		"group":                  "root:x:0:\nmessagebus:x:100:\n",
		"hosts":                  "127.0.0.1 localhost\n::1 localhost\n",
		"resolv.conf":            "nameserver 127.0.0.1\n", "machine-id": strings.Repeat("b", 32) + "\n",
	} {
		if err := os.WriteFile(filepath.Join(root, "etc", name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	if err := os.Symlink("bin", filepath.Join(root, "sbin")); err != nil { // runtimes look for apparmor_parser in /sbin
		return nil, err
	}
	for _, name := range strings.Fields(content.programs) {
		found, err := exec.LookPath(name)
		if err != nil {
			return nil, fmt.Errorf("%w: make setup installs it", err)
		}
		if err := copyFile(found, filepath.Join(root, "bin", name)); err != nil {
			return nil, err
		}
		elf = append(elf, found)
	}
	if content.tools != "" {
		found, err := copyTools(content.tools, root)
		if err != nil {
			return nil, err
		}
		elf = append(elf, found...)
	}
	if systemd != "" {
		for _, name := range []string{"bin/systemctl", "lib/systemd/systemd", "lib/systemd/systemd-logind",
			"usr/bin/dbus-daemon"} {
			elf = append(elf, filepath.Join(systemd, name))
		}
	}
	return elf, nil
}

// copyTools copies toolPrograms and their configuration. It returns the programs.
func copyTools(tools, root string) (programs []string, err error) {
	for _, name := range strings.Fields(toolPrograms) {
		from := filepath.Join(tools, name)
		if err := copyFile(from, filepath.Join(root, "bin", filepath.Base(name))); err != nil {
			return nil, err
		}
		programs = append(programs, from)
	}
	return programs, copyTree(filepath.Join(tools, "etc/iscsi"), filepath.Join(root, "etc/iscsi"))
}

// copyLibraries copies all libraries of the programs, except libraries from the packages of systemd, which are there.
func copyLibraries(ctx context.Context, content image, programs []string, root string) error {
	if len(programs) == 0 {
		return nil
	}
	ldd := exec.CommandContext(ctx, "ldd", programs...)
	path := "LD_LIBRARY_PATH="
	for _, dir := range []string{"lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu",
		"usr/lib/x86_64-linux-gnu/systemd"} {
		path += filepath.Join(content.systemd, dir) + ":" + filepath.Join(content.tools, dir) + ":"
	}
	ldd.Env = append(os.Environ(), path)
	out, err := ldd.Output()
	if err != nil && len(out) == 0 { // ldd fails if a program is linked statically or is a script
		return fmt.Errorf("ldd: %w", err)
	}
	seen := map[string]bool{}
	for line := range bytes.Lines(out) {
		for _, word := range strings.Fields(string(line)) {
			if !strings.HasPrefix(word, "/") || strings.HasSuffix(word, ":") || within(content.systemd, word) ||
				seen[word] {
				continue
			}
			seen[word] = true
			at := word
			if within(content.tools, word) {
				at = strings.TrimPrefix(word, content.tools)
			}
			to := filepath.Join(root, at)
			if _, err := os.Stat(to); err == nil {
				continue // Debian has it
			}
			if err := copyFile(word, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// within reports whether path is below dir. An empty dir has nothing.
func within(dir, path string) bool { return dir != "" && strings.HasPrefix(path, dir) }

// copyTree copies a file or a directory. If from does not exist, it makes only the directory for the copy.
func copyTree(from, to string) error {
	if _, err := os.Stat(from); os.IsNotExist(err) {
		return os.MkdirAll(filepath.Dir(to), 0o755)
	}
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		return copyFile(path, filepath.Join(to, rel))
	})
}

func copyFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close() // the error of the copy is the one to report
		return err
	}
	return out.Close()
}
