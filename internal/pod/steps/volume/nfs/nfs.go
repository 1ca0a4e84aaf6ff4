package nfs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/mount"
	"github.com/berth-run/berth/internal/pod/steps/volume"
)

// probeTimeout bounds the wait for a connection to the server, and mountTimeout the mount with each version.
const (
	probeTimeout = 5 * time.Second
	mountTimeout = 30 * time.Second
)

// statdPID is the file with rpc.statd's process id.
const statdPID = "/run/rpc.statd.pid"

// Kind serves nfs volumes.
type Kind struct {
	// Remote mounts and unmounts in a child process.
	Remote mount.Remote
	Log    *slog.Logger
}

// Dir is the name of the directory for NFS volumes in a pod's directory.
func (Kind) Dir() string { return "kubernetes.io~nfs" }

// Serves reports whether the volume is an NFS volume.
func (Kind) Serves(v *corev1.Volume) bool { return v.NFS != nil }

// ServesPersistent reports whether the PersistentVolume is an NFS volume.
func (Kind) ServesPersistent(v *corev1.PersistentVolume) bool { return v.Spec.NFS != nil }

// Features leaves the owners and labels of files to the server, as the kubelet does.
func (Kind) Features(volume.Request) volume.Features {
	return volume.Features{HostLabels: true, Remote: true}
}

// Publish mounts the server's directory. It keeps an existing mount without a request to the server, which may be gone
// for now.
func (k Kind) Publish(ctx context.Context, r volume.Request) (string, error) {
	at, err := mount.At(r.Target)
	if err != nil {
		return "", err
	}
	if at != nil {
		if !strings.HasPrefix(at.FSType, "nfs") {
			return "", fmt.Errorf("a %s is mounted on %s: unmount it", at.FSType, r.Target)
		}
		return r.Target, nil
	}
	list, last, err := prepare(ctx, r)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(r.Target, 0o750); err != nil {
		return "", err
	}
	for _, call := range list {
		try, cancel := context.WithTimeoutCause(ctx, mountTimeout, fmt.Errorf("no answer in %s", mountTimeout))
		err = k.Remote.Runner.Mount(try, call)
		cancel()
		if err == nil {
			return r.Target, nil
		}
		// The second error is from a server without any version 4.
		if !errors.Is(err, unix.EPROTONOSUPPORT) && !errors.Is(err, unix.EOPNOTSUPP) {
			return "", explain(err)
		}
	}
	if last != nil {
		return "", fmt.Errorf("the server has no NFS version 4: %w", last)
	}
	return "", explain(err)
}

// prepare finds the server and returns the calls to try. last is the error of an NFS version that no call can mount.
func prepare(ctx context.Context, r volume.Request) (list []mount.Call, last, err error) {
	w := want{readOnly: r.ReadOnly}
	source := r.Volume.NFS
	if r.Persistent != nil {
		source, w.options = r.Persistent.Spec.NFS, r.Persistent.Spec.MountOptions
		if modes := r.Persistent.Spec.AccessModes; len(modes) == 1 && modes[0] == corev1.ReadOnlyMany {
			w.readOnly = true
		}
	}
	w.server, w.path, w.readOnly = source.Server, source.Path, w.readOnly || source.ReadOnly
	at, err := port(w.options)
	if err != nil {
		return nil, nil, err
	}
	if w.address, w.local, err = reach(ctx, w.server, at); err != nil {
		return nil, nil, err
	}
	if _, err := os.Stat(statdPID); err == nil {
		w.statd = true
	}
	list, last = calls(w, r.Target)
	if len(list) == 0 {
		return nil, nil, last
	}
	return list, last, nil
}

// reach finds an address where the server answers, and the address of this machine that the server sees. Without this
// probe, the kernel would wait for minutes. With port 0 there is no probe.
func reach(ctx context.Context, server string, port uint16) (remote, local netip.Addr, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	host := strings.TrimSuffix(strings.TrimPrefix(server, "["), "]")
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return remote, local, fmt.Errorf("find the NFS server %s: %w", server, err)
	}
	if port == 0 {
		return addresses[0].Unmap(), local, nil
	}
	var errs []error
	for _, a := range addresses {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp",
			net.JoinHostPort(a.Unmap().String(), strconv.Itoa(int(port))))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if from, ok := conn.LocalAddr().(*net.TCPAddr); ok {
			local = from.AddrPort().Addr().Unmap().WithZone("")
		}
		return a.Unmap(), local, conn.Close()
	}
	return remote, local,
		fmt.Errorf("the NFS server %s does not answer on TCP port %d: %w", server, port, errors.Join(errs...))
}

// explain adds the cause or the next step to an error of the kernel.
func explain(err error) error {
	for _, e := range []struct {
		errno unix.Errno
		why   string
	}{
		{unix.ENODEV,
			"this kernel has no NFS client: load its module (modprobe nfs), or use a kernel with CONFIG_NFS_FS"},
		{unix.EACCES, "the server does not export the directory to this machine"},
		{unix.EPERM, "the server refuses this machine, because of its export or of the client's port"},
		{unix.ENOENT, "the server has no such directory"},
		{unix.EPROTONOSUPPORT, "the server or this kernel does not support that NFS version"},
		{unix.EINVAL, "the kernel refuses the mount options"},
	} {
		if errors.Is(err, e.errno) {
			return fmt.Errorf("%s: %w", e.why, err)
		}
	}
	return err
}

// Unpublish unmounts the directory, even if the server is gone.
func (k Kind) Unpublish(ctx context.Context, target string) error {
	lost, err := k.Remote.Unmount(ctx, target)
	if lost {
		k.Log.Warn("NFS server did not answer at the unmount: data that was not written back is lost", "path", target)
	}
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%w%s", err, volume.HeldBy(target))
	}
	if err != nil {
		return err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
