package nfs

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-run/berth/internal/base/mount"
)

// want describes one mount as its volume asks for it.
type want struct {
	server, path string
	options      []string // mountOptions of the PersistentVolume
	readOnly     bool
	address      netip.Addr // of the server
	local        netip.Addr // the address of this machine that the server sees
	statd        bool       // rpc.statd is running; the locks of NFS version 3 need it
}

// portNFS is the port of NFS. portRPCBind is the port of the service that knows the ports of NFS version 3.
const (
	portNFS     = 2049
	portRPCBind = 111
)

// port is the TCP port that shows whether the server answers. It is 0 if the mount does not use TCP.
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
			return 0, fmt.Errorf("mount option port=%s: not a port number", text)
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

// calls returns the calls of mount(2) to try in order, while the server does not support the version. Like
// mount.nfs(8), it starts with the newest version. The error is for a version that no call can mount; the calls before
// it are valid.
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
			// Version and addresses are added below. This agent retries by itself.
		case option == "bg":
			return nil, fmt.Errorf("mount option bg: a pod waits for its volumes; remove the option")
		case strings.HasPrefix(option, "sec=krb5"):
			return nil,
				fmt.Errorf(
					"mount option %s: this version does not support Kerberos: mount the server on a directory of the "+
						"host and use hostPath", option)
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
			return list, fmt.Errorf("NFS version 3 needs rpc.statd for its locks, and rpc.statd is not running: " +
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

// versionsOf returns the NFS versions to try.
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
	return nil, fmt.Errorf("NFS version %s: not one of 3, 4, 4.0, 4.1, 4.2", version)
}

func isVersion(option string) bool {
	name, _, ok := strings.Cut(option, "=")
	return ok && slices.Contains([]string{"vers", "nfsvers", "minorversion"}, name) ||
		slices.Contains([]string{"v2", "v3", "v4", "v4.0", "v4.1", "v4.2"}, option)
}

// unlocked reports whether the options keep locks on this machine.
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

// source is the name of the mount in the mount table. An IPv6 address is in brackets, because the path follows a colon.
func source(server, path string) string {
	server = strings.TrimSuffix(strings.TrimPrefix(server, "["), "]")
	if strings.Contains(server, ":") {
		server = "[" + server + "]"
	}
	return server + ":" + path
}
