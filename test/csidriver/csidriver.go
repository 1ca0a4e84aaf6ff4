// Package csidriver is a CSI driver for tests. It serves the identity, node and controller services of the real API
// on a unix socket, registers at the agent, and has an external-attacher. A volume is a directory below Dir, which is
// bind mounted to the target path, or a file behind a loop device. Calls can be made to fail and to hang.
package csidriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	pluginregistration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/berth-run/berth/internal/base/unixsocket"
)

// Driver is a CSI driver. Set its fields before Serve.
type Driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	pluginregistration.UnimplementedRegistrationServer

	Name, NodeID string
	// Dir is the directory with the volumes' content.
	Dir string
	// Version is the API version that the driver registers with; the default is 1.0.0.
	Version string
	// Can lists the node service's capabilities.
	Can []csi.NodeServiceCapability_RPC_Type
	// NodeGetInfo returns Limit, the most volumes on the node, and Topology.
	Limit    int64
	Topology map[string]string

	mu     sync.Mutex
	calls  []Call
	faults map[string]error
	// abnormal is the message of an abnormal condition of the volumes, or "".
	abnormal string
	loops    map[string]*os.File // by target
	socket   string
}

// Call is a call that the driver has received. Method is its name without the service.
type Call struct {
	Method  string
	Request proto.Message
}

// ErrHang is a fault for Fail: the call hangs until its caller gives up.
var ErrHang = errors.New("hang")

// Fail makes calls of a method fail with err, or hang if err is ErrHang. If err is nil, they succeed again.
func (d *Driver) Fail(method string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.faults == nil {
		d.faults = map[string]error{}
	}
	d.faults[method] = err
}

// Calls returns the calls of a method so far, or of all methods for "".
func (d *Driver) Calls(method string) (found []Call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.calls {
		if method == "" || c.Method == method {
			found = append(found, c)
		}
	}
	return found
}

// Serve serves the driver on a socket and, if registration is not empty, serves the registration API on a second
// socket there. stop ends both and removes the sockets. The driver can be served again afterwards.
func (d *Driver) Serve(socket, registration string) (stop func(), err error) {
	d.socket = socket
	s := grpc.NewServer(grpc.UnaryInterceptor(d.intercept))
	csi.RegisterIdentityServer(s, d)
	csi.RegisterControllerServer(s, d)
	csi.RegisterNodeServer(s, d)
	pluginregistration.RegisterRegistrationServer(s, d)
	var serving sync.WaitGroup
	stop = func() { s.Stop(); serving.Wait() }
	paths := []string{socket}
	if registration != "" {
		paths = append(paths, registration)
	}
	for _, path := range paths {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			stop()
			return nil, err
		}
		l, err := unixsocket.Listen(path)
		if err != nil {
			stop()
			return nil, err
		}
		serving.Go(func() { _ = s.Serve(l) })
	}
	return stop, nil
}

func (d *Driver) intercept(ctx context.Context, q any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any,
	error) {
	method := info.FullMethod[strings.LastIndex(info.FullMethod, "/")+1:]
	message, _ := q.(proto.Message)
	d.mu.Lock()
	d.calls = append(d.calls, Call{method, message})
	fault := d.faults[method]
	d.mu.Unlock()
	if errors.Is(fault, ErrHang) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if fault != nil {
		return nil, fault
	}
	return next(ctx, q)
}

// GetInfo describes the driver to the agent's plugin watcher.
func (d *Driver) GetInfo(context.Context, *pluginregistration.InfoRequest) (*pluginregistration.PluginInfo, error) {
	return &pluginregistration.PluginInfo{Type: "CSIPlugin", Name: d.Name, Endpoint: d.socket,
		SupportedVersions: []string{cmp.Or(d.Version, "1.0.0")}}, nil
}

// NotifyRegistrationStatus ignores the outcome of the registration.
func (d *Driver) NotifyRegistrationStatus(context.Context,
	*pluginregistration.RegistrationStatus) (*pluginregistration.RegistrationStatusResponse, error) {
	return &pluginregistration.RegistrationStatusResponse{}, nil
}

// GetPluginInfo returns the driver's name.
func (d *Driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.Name, VendorVersion: "1"}, nil
}

// Probe reports that the driver is ready.
func (d *Driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

// NodeGetInfo returns the node's ID, volume limit and topology.
func (d *Driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.NodeID, MaxVolumesPerNode: d.Limit,
		AccessibleTopology: &csi.Topology{Segments: d.Topology}}, nil
}

// NodeGetCapabilities returns Can.
func (d *Driver) NodeGetCapabilities(context.Context,
	*csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	r := &csi.NodeGetCapabilitiesResponse{}
	for _, c := range d.Can {
		r.Capabilities = append(r.Capabilities,
			&csi.NodeServiceCapability{
				Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: c}}})
	}
	return r, nil
}

// NodeStageVolume bind mounts the volume's directory. For a block volume it does nothing: NodePublishVolume makes the
// device.
func (d *Driver) NodeStageVolume(_ context.Context, q *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse,
	error) {
	if q.GetVolumeCapability().GetBlock() != nil {
		return &csi.NodeStageVolumeResponse{}, nil
	}
	return &csi.NodeStageVolumeResponse{}, d.bind(q.GetVolumeId(), q.GetStagingTargetPath(), false)
}

// NodeUnstageVolume unmounts the staging path.
func (d *Driver) NodeUnstageVolume(_ context.Context, q *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse,
	error) {
	return &csi.NodeUnstageVolumeResponse{}, unmount(q.GetStagingTargetPath())
}

// NodePublishVolume bind mounts the volume's directory or its device.
func (d *Driver) NodePublishVolume(_ context.Context, q *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse,
	error) {
	if q.GetVolumeCapability().GetBlock() != nil {
		return &csi.NodePublishVolumeResponse{}, d.bindDevice(q.GetVolumeId(), q.GetTargetPath())
	}
	if err := os.MkdirAll(q.GetTargetPath(), 0o750); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodePublishVolumeResponse{}, d.bind(q.GetVolumeId(), q.GetTargetPath(), q.GetReadonly())
}

// NodeUnpublishVolume unmounts the target, detaches its loop device and removes the target.
func (d *Driver) NodeUnpublishVolume(_ context.Context,
	q *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := unmount(q.GetTargetPath()); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if loop := d.loops[q.GetTargetPath()]; loop != nil {
		err := errors.Join(unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0), loop.Close())
		delete(d.loops, q.GetTargetPath())
		if err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	if err := os.Remove(q.GetTargetPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// NodeExpandVolume changes nothing and reports the requested size.
func (d *Driver) NodeExpandVolume(_ context.Context, q *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse,
	error) {
	return &csi.NodeExpandVolumeResponse{CapacityBytes: q.GetCapacityRange().GetRequiredBytes()}, nil
}

// Condition makes the driver report an abnormal condition of its volumes with this message, or a normal one for "".
func (d *Driver) Condition(message string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.abnormal = message
}

// NodeGetVolumeStats returns made-up numbers, and the condition of Condition.
func (d *Driver) NodeGetVolumeStats(context.Context, *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse,
	error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	answer := &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: 100, Available: 60, Used: 40},
		{Unit: csi.VolumeUsage_INODES, Total: 10, Available: 9, Used: 1},
	}}
	condition := protowire.AppendTag(nil, 1, protowire.VarintType)
	condition = protowire.AppendVarint(condition, protowire.EncodeBool(d.abnormal != ""))
	condition = protowire.AppendTag(condition, 2, protowire.BytesType)
	condition = protowire.AppendString(condition, d.abnormal)
	field := protowire.AppendTag(nil, 2, protowire.BytesType) // volume_condition of CSI 1.9
	answer.ProtoReflect().SetUnknown(protowire.AppendBytes(field, condition))
	return answer, nil
}

// bind mounts a volume's directory at the target, unless it is mounted already.
func (d *Driver) bind(id, target string, readOnly bool) error {
	mounted, err := mountinfo.Mounted(target)
	if mounted || err != nil {
		return err
	}
	dir := filepath.Join(d.Dir, id)
	err = os.MkdirAll(dir, 0o750)
	if err == nil {
		err = unix.Mount(dir, target, "", unix.MS_BIND, "")
	}
	if err == nil && readOnly {
		err = unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	if err != nil {
		return status.Error(codes.Internal, fmt.Sprintf("bind %s to %s: %v", dir, target, err))
	}
	return nil
}

// bindDevice makes a loop device from a volume's file and bind mounts its device node.
func (d *Driver) bindDevice(id, target string) error {
	mounted, err := mountinfo.Mounted(target)
	if mounted || err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	device, err := attachLoop(filepath.Join(d.Dir, id+".img"))
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	err = os.WriteFile(target, nil, 0o600)
	if err == nil {
		err = unix.Mount(device.Name(), target, "", unix.MS_BIND, "")
	}
	if err != nil {
		_ = unix.IoctlSetInt(int(device.Fd()), unix.LOOP_CLR_FD, 0)
		return status.Error(codes.Internal, errors.Join(err, device.Close()).Error())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loops == nil {
		d.loops = map[string]*os.File{}
	}
	d.loops[target] = device
	return nil
}

func attachLoop(image string) (*os.File, error) {
	file, err := os.OpenFile(image, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := file.Truncate(1 << 20); err != nil {
		return nil, err
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	for {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a loop device: %w", err)
		}
		device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		err = unix.IoctlSetInt(int(device.Fd()), unix.LOOP_SET_FD, int(file.Fd()))
		if err == nil {
			return device, nil
		}
		_ = device.Close()
		if !errors.Is(err, unix.EBUSY) { // EBUSY: another process has just attached this device
			return nil, fmt.Errorf("attach %s: %w", device.Name(), err)
		}
	}
}

func unmount(target string) error {
	mounted, err := mountinfo.Mounted(target)
	if errors.Is(err, os.ErrNotExist) || err == nil && !mounted {
		return nil
	}
	if err == nil {
		err = unix.Unmount(target, 0)
	}
	if err != nil {
		return status.Error(codes.Internal, fmt.Sprintf("unmount %s: %v", target, err))
	}
	return nil
}
