package nfs

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-run/berth/internal/base/mount"
)

// want is one mount as its volume describes it.
type want struct {
	server, path string
	options      []string // mountOptions of the PersistentVolume
	readOnly     bool
	address      netip.Addr // of the server
	local        netip.Addr // of this machine, towards the server
	statd        bool       // rpc.statd runs, which the locks of version 3 need
}

// The ports of a server: NFS, and the one that says where version 3's parts are.
const (
	portNFS     = 2049
	portRPCBind = 111
)

// port is the TCP port that tells whether the server answers; 0 for none, when
// it is not reached over TCP.
func port(options []string) (uint16, error) {
	o, err := mount.Parse(options)
	if err != nil {
		return 0, err
	}
	if protocol, ok := value(o.Data, "proto"); ok && protocol != "tcp" && protocol != "tcp6" ||
		slices.Contains(o.Data, "udp") {
		return 0, nil
	}
	if text, ok := value(o.Data, "port"); ok {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("mount option port=%s: it is not a port", text)
		}
		if n != 0 {
			return uint16(n), nil
		}
	}
	versions, err := versionsOf(o.Data)
	if err == nil && versions[0] == "3" {
		return portRPCBind, nil
	}
	return portNFS, err
}

// calls are the calls of mount(2) to try, one after the other as long as the
// server does not know the version: as mount.nfs(8), from the newest on. An error
// is for a version of which no call can be made.
func calls(w want, target string) ([]mount.Call, error) {
	o, err := mount.Parse(w.options)
	if err != nil {
		return nil, err
	}
	versions, err := versionsOf(o.Data)
	if err != nil {
		return nil, err
	}
	var data []string
	for _, option := range o.Data {
		switch name, _, _ := strings.Cut(option, "="); {
		case isVersion(option), name == "addr", name == "clientaddr", name == "retry", option == "fg":
			// The first are said below. Trying again is this agent's.
		case option == "bg":
			return nil, fmt.Errorf("mount option bg: a pod waits for its volumes, take it out")
		case strings.HasPrefix(option, "sec=krb5"):
			return nil,
				fmt.Errorf(
					"mount option %s: Kerberos is not supported by this version: mount it on a directory of the host "+
						"and use hostPath", option)
		default:
			data = append(data, option)
		}
	}
	flags := o.Flags
	if w.readOnly {
		ro, _ := mount.Parse([]string{"ro"})
		flags |= ro.Flags
	}
	var list []mount.Call
	for _, version := range versions {
		own := []string{"vers=" + version, "addr=" + w.address.String()}
		switch {
		case version == "3" && !w.statd && !unlocked(data):
			return list, fmt.Errorf("NFS version 3 needs rpc.statd for its locks, and that does not run here: " +
				"install and start it (nfs-common), or use a PersistentVolume with the mountOption nolock, which " +
				"keeps locks on this machine")
		case version == "3":
			own = append(own, "mountaddr="+w.address.String())
		case w.local.IsValid():
			own = append(own, "clientaddr="+w.local.String())
		}
		list = append(list, mount.Call{
			Source: source(w.server, w.path), Target: target, Type: "nfs", Flags: flags,
			Data: strings.Join(slices.Concat(own, data), ","),
		})
	}
	return list, nil
}

// versionsOf are the versions to try.
func versionsOf(data []string) ([]string, error) {
	version, minor := "", ""
	for _, option := range data {
		name, text, ok := strings.Cut(option, "=")
		switch {
		case name == "minorversion":
			minor = text
		case isVersion(option) && ok:
			version = text
		case isVersion(option):
			version = strings.TrimPrefix(option, "v")
		}
	}
	if version == "4" && minor != "" {
		version += "." + minor
	}
	switch version {
	case "":
		return []string{"4.2", "4.1", "4.0", "3"}, nil
	case "4":
		return []string{"4.2", "4.1", "4.0"}, nil
	case "3", "4.0", "4.1", "4.2":
		return []string{version}, nil
	}
	return nil, fmt.Errorf("NFS version %s: it is not one of 3, 4, 4.0, 4.1, 4.2", version)
}

func isVersion(option string) bool {
	name, _, ok := strings.Cut(option, "=")
	return ok && slices.Contains([]string{"vers", "nfsvers", "minorversion"}, name) ||
		slices.Contains([]string{"v2", "v3", "v4", "v4.0", "v4.1", "v4.2"}, option)
}

// unlocked says that locks stay on this machine.
func unlocked(data []string) bool {
	local, _ := value(data, "local_lock")
	return slices.Contains(data, "nolock") || local == "all"
}

func value(data []string, name string) (text string, ok bool) {
	for _, option := range data {
		if n, v, found := strings.Cut(option, "="); found && n == name {
			text, ok = v, true // the last counts
		}
	}
	return text, ok
}

// source names what is mounted as the mount table shows it: an IPv6 address is
// in brackets, for what follows a colon is the path.
func source(server, path string) string {
	server = strings.TrimSuffix(strings.TrimPrefix(server, "["), "]")
	if strings.Contains(server, ":") {
		server = "[" + server + "]"
	}
	return server + ":" + path
}
