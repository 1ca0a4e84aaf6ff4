// Package dradriver is a DRA driver of devices that do not exist, for tests. It is
// built on the library that drivers are built on, and registers as they do.
package dradriver

import (
	"context"
	"encoding/json"
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
	// Specs is a directory for CDI specifications: a device of a claim sets a variable
	// of its own name in capitals to NAMESPACE/CLAIM, and brings a node /dev/DEVICE that
	// is /dev/zero. "": there are none.
	Specs string
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
	hang     string
	asked    chan struct{} // closed at each call
	health   map[string]kubeletplugin.HealthStatus
	changed  chan struct{} // closed at each change of health, and of what hangs
}

// Start serves, registers and publishes.
func Start(ctx context.Context, o Options) (*Driver, error) {
	ctx, cancel := context.WithCancel(ctx)
	d := &Driver{cancel: cancel, opts: o, prepared: map[types.UID]bool{},
		health: map[string]kubeletplugin.HealthStatus{}, asked: make(chan struct{}), changed: make(chan struct{})}
	registry, data := filepath.Join(o.Root, "plugins_registry"), filepath.Join(o.Root, "plugins", o.Name)
	err := errors.Join(os.MkdirAll(registry, 0o750), os.MkdirAll(data, 0o750))
	if err == nil {
		d.helper, err = kubeletplugin.Start(ctx, d, kubeletplugin.DriverName(o.Name), kubeletplugin.NodeName(o.Node),
			kubeletplugin.KubeClient(o.Client),
			kubeletplugin.RegistrarDirectoryPath(registry), kubeletplugin.PluginDataDirectoryPath(data),
			kubeletplugin.NodeV1(!o.V1beta1), kubeletplugin.HealthV1(!o.V1beta1))
	}
	if err == nil && len(o.Devices) > 0 {
		slice := resourceslice.Slice{}
		for _, name := range o.Devices {
			slice.Devices = append(slice.Devices, resourceapi.Device{Name: name})
		}
		err = d.helper.PublishResources(ctx,
			resourceslice.DriverResources{
				Pools: map[string]resourceslice.Pool{o.Node: {Slices: []resourceslice.Slice{slice}}}})
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
	d.Hang("") // the library waits for calls that are under way
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

// Hang has calls of one method, prepare or unprepare, not answer; "": none.
func (d *Driver) Hang(method string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hang = method
	d.tell()
}

// tell wakes who waits for a change. The caller holds mu.
func (d *Driver) tell() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// SetHealth changes what it says of a device.
func (d *Driver) SetHealth(device string, status kubeletplugin.HealthStatus) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.health[device] = status
	d.tell()
}

// Await returns when a call has come, or ctx ends.
func (d *Driver) Await(ctx context.Context, call string) error {
	for {
		d.mu.Lock()
		asked, there := d.asked, slices.Contains(d.calls, call)
		d.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-asked:
		case <-ctx.Done():
			return fmt.Errorf("the driver was not asked %q but %q", call, d.Calls())
		}
	}
}

// called notes a call, and returns when it is to be answered. The caller holds mu,
// and holds it again then.
func (d *Driver) called(ctx context.Context, method, namespace, name string) error {
	d.calls = append(d.calls, method+" "+namespace+"/"+name)
	close(d.asked)
	d.asked = make(chan struct{})
	for d.hang == method {
		changed := d.changed
		d.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		d.mu.Lock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if d.refuse != "" {
		return errors.New(d.refuse)
	}
	return nil
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

// PrepareResourceClaims implements kubeletplugin.DRAPlugin.
func (d *Driver) PrepareResourceClaims(ctx context.Context,
	claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := map[types.UID]kubeletplugin.PrepareResult{}
	for _, c := range claims {
		result := kubeletplugin.PrepareResult{Err: d.called(ctx, "prepare", c.Namespace, c.Name)}
		var devices []any
		for _, r := range c.Status.Allocation.Devices.Results {
			if r.Driver == d.opts.Name {
				result.Devices = append(result.Devices, kubeletplugin.Device{
					Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device,
					CDIDeviceIDs: []string{d.CDI(c.Name, r.Device)},
				})
				devices = append(devices, deviceOf(c, r.Device))
			}
		}
		if result.Err == nil && d.opts.Specs != "" {
			result.Err = d.specify(c.UID, devices)
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
	return d.opts.Name + "/device=" + local(claim, device)
}

func local(claim, device string) string { return strings.ReplaceAll(claim, ".", "-") + "-" + device }

// spec is the file of a claim's devices.
func (d *Driver) spec(uid types.UID) string {
	return filepath.Join(d.opts.Specs, d.opts.Name+"-"+string(uid)+".json")
}

// deviceOf is a device as CDI specifies it.
func deviceOf(c *resourceapi.ResourceClaim, device string) any {
	variable := strings.ToUpper(strings.ReplaceAll(device, "-", "_"))
	return map[string]any{"name": local(c.Name, device), "containerEdits": map[string]any{
		"env":         []string{variable + "=" + c.Namespace + "/" + c.Name},
		"deviceNodes": []any{map[string]string{"path": "/dev/" + device, "hostPath": "/dev/zero"}},
	}}
}

// specify writes the CDI specification of a claim's devices.
func (d *Driver) specify(uid types.UID, devices []any) error {
	text, err := json.Marshal(map[string]any{"cdiVersion": "0.6.0", "kind": d.opts.Name + "/device",
		"devices": devices})
	if err != nil {
		return err
	}
	return os.WriteFile(d.spec(uid), text, 0o644)
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin.
func (d *Driver) UnprepareResourceClaims(ctx context.Context,
	claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := map[types.UID]error{}
	for _, c := range claims {
		all[c.UID] = d.called(ctx, "unprepare", c.Namespace, c.Name)
		if all[c.UID] == nil {
			delete(d.prepared, c.UID)
			_ = os.Remove(d.spec(c.UID)) // it may have none
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
			report.Devices = append(report.Devices,
				kubeletplugin.DeviceHealth{PoolName: d.opts.Node, DeviceName: name, Health: status})
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
