package mount

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Options are mount options of fstab(5), split into flags and data.
type Options struct {
	// Flags are the flags of mount(2).
	Flags uintptr
	// Data are the options of the file system, in their order.
	Data []string
}

// Parse splits options into flags of mount(2), which every file system has, and the file system's own options. Of
// contradicting options, the last one wins, as in mount(8). It drops options that only mount(8) uses (defaults,
// _netdev, nofail, comment=..., x-...).
func Parse(options []string) (Options, error) {
	flags := flagOptions()
	var o Options
	for _, list := range options {
		for option := range strings.SplitSeq(list, ",") {
			option = strings.TrimSpace(option)
			f, isFlag := flags[option]
			switch {
			case option == "" || ofMount8(option):
			case isFlag && f.clear:
				o.Flags &^= f.bits
			case isFlag:
				o.Flags = o.Flags&^f.without | f.bits
			case strings.ContainsAny(option, "\x00\n"):
				return Options{}, fmt.Errorf("mount option %q: contains a line break or a zero byte", option)
			case slices.Contains([]string{"bind", "rbind", "move", "remount"}, option),
				strings.Contains(option, "shared"), strings.Contains(option, "private"):
				return Options{}, fmt.Errorf("mount option %q: not an option of a file system", option)
			default:
				o.Data = append(o.Data, option)
			}
		}
	}
	return o, nil
}

// ReadOnly reports whether the mount is read-only.
func (o Options) ReadOnly() bool { return o.Flags&unix.MS_RDONLY != 0 }

func ofMount8(option string) bool {
	for _, prefix := range []string{"x-", "X-", "comment="} {
		if strings.HasPrefix(option, prefix) {
			return true
		}
	}
	return slices.Contains([]string{"defaults", "_netdev", "auto", "noauto", "user", "nouser", "users", "owner",
		"group", "nofail", "loud"}, option)
}

type flagOption struct {
	clear         bool
	bits, without uintptr
}

func flagOptions() map[string]flagOption {
	set := func(bits uintptr) flagOption { return flagOption{bits: bits} }
	drop := func(bits uintptr) flagOption { return flagOption{bits: bits, clear: true} }
	const atime = unix.MS_NOATIME | unix.MS_RELATIME | unix.MS_STRICTATIME
	return map[string]flagOption{
		"ro": set(unix.MS_RDONLY), "rw": drop(unix.MS_RDONLY),
		"nosuid": set(unix.MS_NOSUID), "suid": drop(unix.MS_NOSUID),
		"nodev": set(unix.MS_NODEV), "dev": drop(unix.MS_NODEV),
		"noexec": set(unix.MS_NOEXEC), "exec": drop(unix.MS_NOEXEC),
		"sync": set(unix.MS_SYNCHRONOUS), "async": drop(unix.MS_SYNCHRONOUS),
		"dirsync": set(unix.MS_DIRSYNC),
		"mand":    set(unix.MS_MANDLOCK), "nomand": drop(unix.MS_MANDLOCK),
		"noatime": {bits: unix.MS_NOATIME, without: atime}, "atime": drop(unix.MS_NOATIME),
		"nodiratime": set(unix.MS_NODIRATIME), "diratime": drop(unix.MS_NODIRATIME),
		"relatime": {bits: unix.MS_RELATIME, without: atime}, "norelatime": drop(unix.MS_RELATIME),
		"strictatime": {bits: unix.MS_STRICTATIME, without: atime}, "nostrictatime": drop(unix.MS_STRICTATIME),
		"lazytime": set(unix.MS_LAZYTIME), "nolazytime": drop(unix.MS_LAZYTIME),
		"nosymfollow": set(unix.MS_NOSYMFOLLOW), "silent": set(unix.MS_SILENT),
	}
}
