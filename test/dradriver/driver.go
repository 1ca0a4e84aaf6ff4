// Package dradriver is a DRA driver of devices that do not exist, for tests. It is
// built on the library that drivers are built on, and registers as they do.
package dradriver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// Options of a Driver.
type Options struct {
	// Name of the driver, e.g. gpu.example.com. It answers with CDI names of the kind
	// NAME/device, the device's own being CLAIM-DEVICE.
	Name string
	// Root is the agent's root directory.
	Root string
	// Node and Client are those of the node. The client reads claims, and publishes
	// Devices in a pool of the node's name.
	Node    string
	Client  kubernetes.Interface
	Devices []string
	// V1beta1 has it serve that version only.
	V1beta1 bool
}

// Driver serves until Stop.
type Driver struct {
	helper *kubeletplugin.Helper
	cancel context.CancelFunc
	opts   Options

	mu       sync.Mutex
	prepared map[types.UID]bool
	calls    []string
	refuse   string
	health   map[string]kubeletplugin.HealthStatus
	changed  chan struct{} // closed at each change of health
}

// Start serves, registers and publishes.
func Start(ctx context.Context, o Options) (*Driver, error) {
	ctx, cancel := context.WithCancel(ctx)
	d := &Driver{cancel: cancel, opts: o, prepared: map[types.UID]bool{}, health: map[string]kubeletplugin.HealthStatus{}, changed: make(chan struct{})}
	registry, data := filepath.Join(o.Root, "plugins_registry"), filepath.Join(o.Root, "plugins", o.Name)
	err := errors.Join(os.MkdirAll(registry, 0o750), os.MkdirAll(data, 0o750))
	if err == nil {
		d.helper, err = kubeletplugin.Start(ctx, d, kubeletplugin.DriverName(o.Name), kubeletplugin.NodeName(o.Node), kubeletplugin.KubeClient(o.Client),
			kubeletplugin.RegistrarDirectoryPath(registry), kubeletplugin.PluginDataDirectoryPath(data), kubeletplugin.NodeV1(!o.V1beta1), kubeletplugin.HealthV1(!o.V1beta1))
	}
	if err == nil && len(o.Devices) > 0 {
		slice := resourceslice.Slice{}
		for _, name := range o.Devices {
			slice.Devices = append(slice.Devices, resourceapi.Device{Name: name})
		}
		err = d.helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{o.Node: {Slices: []resourceslice.Slice{slice}}}})
	}
	if err != nil {
		d.Stop()
		return nil, fmt.Errorf("start DRA driver %s: %w", o.Name, err)
	}
	return d, nil
}

// Stop ends it, as a signal would: its sockets go, its slices stay.
func (d *Driver) Stop() {
	d.cancel()
	if d.helper != nil {
		d.helper.Stop()
	}
}

// Socket is where it serves.
func (d *Driver) Socket() string {
	return filepath.Join(d.opts.Root, "plugins", d.opts.Name, "dra.sock")
}

// Refuse has it fail each claim with this error; "": no more.
func (d *Driver) Refuse(message string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refuse = message
}

// SetHealth changes what it says of a device.
func (d *Driver) SetHealth(device string, status kubeletplugin.HealthStatus) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.health[device] = status
	close(d.changed)
	d.changed = make(chan struct{})
}

// Calls are those that came, in their order, e.g. "prepare default/claim".
func (d *Driver) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// Prepared says how many claims are.
func (d *Driver) Prepared() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.prepared)
}

func (d *Driver) failure() error {
	if d.refuse == "" {
		return nil
	}
	return errors.New(d.refuse)
}

// PrepareResourceClaims implements kubeletplugin.DRAPlugin.
func (d *Driver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := map[types.UID]kubeletplugin.PrepareResult{}
	for _, c := range claims {
		d.calls = append(d.calls, "prepare "+c.Namespace+"/"+c.Name)
		result := kubeletplugin.PrepareResult{Err: d.failure()}
		for _, r := range c.Status.Allocation.Devices.Results {
			if r.Driver == d.opts.Name {
				result.Devices = append(result.Devices, kubeletplugin.Device{
					Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device, CDIDeviceIDs: []string{d.CDI(c.Name, r.Device)},
				})
			}
		}
		if result.Err == nil {
			d.prepared[c.UID] = true
		}
		all[c.UID] = result
	}
	return all, nil
}

// CDI is the name of a claim's device.
func (d *Driver) CDI(claim, device string) string {
	return d.opts.Name + "/device=" + strings.ReplaceAll(claim, ".", "-") + "-" + device
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin.
func (d *Driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := map[types.UID]error{}
	for _, c := range claims {
		d.calls = append(d.calls, "unprepare "+c.Namespace+"/"+c.Name)
		all[c.UID] = d.failure()
		if all[c.UID] == nil {
			delete(d.prepared, c.UID)
		}
	}
	return all, nil
}

// HandleError implements kubeletplugin.DRAPlugin. The library tries again.
func (d *Driver) HandleError(_ context.Context, err error, msg string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, "error "+msg+": "+err.Error())
}

// WatchHealthStatus implements kubeletplugin.DRAPlugin.
func (d *Driver) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	for {
		d.mu.Lock()
		report, changed := kubeletplugin.DeviceHealthReport{}, d.changed
		for name, status := range d.health {
			report.Devices = append(report.Devices, kubeletplugin.DeviceHealth{PoolName: d.opts.Node, DeviceName: name, Health: status})
		}
		d.mu.Unlock()
		select {
		case reports <- report:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}
