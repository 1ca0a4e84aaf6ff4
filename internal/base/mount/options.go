package mount

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Options are mount options as fstab(5) has them, told apart.
type Options struct {
	// Flags are those of mount(2).
	Flags uintptr
	// Data are the options of the file system, in their order.
	Data []string
}

// Parse tells the options of every file system, which are flags of mount(2),
// from a file system's own. Of options that contradict each other the last
// counts, as in mount(8). What mount(8) keeps to itself (defaults, _netdev,
// nofail, comment=..., x-...) is dropped.
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
				return Options{}, fmt.Errorf("mount option %q: it holds a line break or a zero byte", option)
			case slices.Contains([]string{"bind", "rbind", "move", "remount"}, option),
				strings.Contains(option, "shared"), strings.Contains(option, "private"):
				return Options{}, fmt.Errorf("mount option %q: it is not one of a file system", option)
			default:
				o.Data = append(o.Data, option)
			}
		}
	}
	return o, nil
}

// ReadOnly says whether nothing may be written by way of the mount.
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
