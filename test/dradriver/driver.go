// Package dradriver is a DRA driver for tests, with devices that do not exist. It uses the same library as real
// drivers, and registers as they do.
package dradriver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/berth-run/berth/internal/base/unixsocket"
	"github.com/berth-run/berth/test/calls"
)

// Options of a Driver.
type Options struct {
	// Name of the driver, such as gpu.example.com. The CDI names in its answers have the kind NAME/device and end in
	// CLAIM-DEVICE.
	Name string
	// Root is the agent's root directory.
	Root string
	// Node is the node's name. Client reads claims, and publishes Devices in a pool of the node's name.
	Node    string
	Client  kubernetes.Interface
	Devices []string
	// Specs is a directory for CDI specifications. With them, a device of a claim sets a variable of its name in
	// capitals to NAMESPACE/CLAIM, and adds a node /dev/DEVICE that is /dev/zero. If Specs is empty, the driver writes
	// no specifications.
	Specs string
	// V1beta1 makes the driver serve only version v1beta1.
	V1beta1 bool
}

// Driver serves until Stop.
type Driver struct {
	*calls.Log // such as "prepare default/claim"

	helper *kubeletplugin.Helper
	cancel context.CancelFunc
	opts   Options

	mu       sync.Mutex
	prepared map[types.UID]bool
	refuse   string
	hang     string
	health   map[string]kubeletplugin.HealthStatus
	changed  chan struct{} // closed and replaced at each change of health or hang
}

// Start serves the driver, registers it and publishes its devices.
func Start(ctx context.Context, o Options) (*Driver, error) {
	ctx, cancel := context.WithCancel(ctx)
	d := &Driver{Log: calls.New("DRA driver"), cancel: cancel, opts: o, prepared: map[types.UID]bool{},
		health: map[string]kubeletplugin.HealthStatus{}, changed: make(chan struct{})}
	registry, data := filepath.Join(o.Root, "plugins_registry"), filepath.Join(o.Root, "plugins", o.Name)
	err := errors.Join(os.MkdirAll(registry, 0o750), os.MkdirAll(data, 0o750))
	if err == nil {
		d.helper, err = kubeletplugin.Start(ctx, d, kubeletplugin.DriverName(o.Name), kubeletplugin.NodeName(o.Node),
			kubeletplugin.KubeClient(o.Client),
			kubeletplugin.RegistrarDirectoryPath(registry), kubeletplugin.PluginDataDirectoryPath(data),
			kubeletplugin.RegistrarListener(listen), kubeletplugin.PluginListener(listen),
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

// listen makes a socket at a path of any length, in place of one that an earlier driver has left.
func listen(_ context.Context, path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return unixsocket.Listen(path)
}

// Stop ends the driver like a signal: its sockets are removed, its ResourceSlices stay.
func (d *Driver) Stop() {
	d.cancel()
	d.Hang("") // because the library waits for the calls that it has begun
	if d.helper != nil {
		d.helper.Stop()
	}
}

// Socket is the path of the driver's socket.
func (d *Driver) Socket() string {
	return filepath.Join(d.opts.Root, "plugins", d.opts.Name, "dra.sock")
}

// Refuse makes the driver fail each claim with this error. If message is empty, claims succeed again.
func (d *Driver) Refuse(message string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refuse = message
}

// Hang makes calls of one method, "prepare" or "unprepare", hang. If method is empty, no calls hang.
func (d *Driver) Hang(method string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hang = method
	d.notify()
}

// notify wakes all goroutines that wait for a change. The caller holds mu.
func (d *Driver) notify() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// SetHealth changes the health that the driver reports for a device.
func (d *Driver) SetHealth(device string, status kubeletplugin.HealthStatus) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.health[device] = status
	d.notify()
}

// record records a call, waits while the method hangs, and returns the error of Refuse. The caller holds mu, which
// record releases while it waits.
func (d *Driver) record(ctx context.Context, method, namespace, name string) error {
	d.Record(method + " " + namespace + "/" + name)
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

// Prepared is the number of prepared claims.
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
		result := kubeletplugin.PrepareResult{Err: d.record(ctx, "prepare", c.Namespace, c.Name)}
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
			result.Err = d.writeSpec(c.UID, devices)
		}
		if result.Err == nil {
			d.prepared[c.UID] = true
		}
		all[c.UID] = result
	}
	return all, nil
}

// CDI is the CDI name of a claim's device.
func (d *Driver) CDI(claim, device string) string {
	return d.opts.Name + "/device=" + deviceName(claim, device)
}

func deviceName(claim, device string) string {
	return strings.ReplaceAll(claim, ".", "-") + "-" + device
}

// specPath is the path of the CDI specification of a claim's devices.
func (d *Driver) specPath(uid types.UID) string {
	return filepath.Join(d.opts.Specs, d.opts.Name+"-"+string(uid)+".json")
}

// deviceOf is a device in a CDI specification.
func deviceOf(c *resourceapi.ResourceClaim, device string) any {
	variable := strings.ToUpper(strings.ReplaceAll(device, "-", "_"))
	return map[string]any{"name": deviceName(c.Name, device), "containerEdits": map[string]any{
		"env":         []string{variable + "=" + c.Namespace + "/" + c.Name},
		"deviceNodes": []any{map[string]string{"path": "/dev/" + device, "hostPath": "/dev/zero"}},
	}}
}

// writeSpec writes the CDI specification of a claim's devices.
func (d *Driver) writeSpec(uid types.UID, devices []any) error {
	text, err := json.Marshal(map[string]any{"cdiVersion": "0.6.0", "kind": d.opts.Name + "/device",
		"devices": devices})
	if err != nil {
		return err
	}
	return os.WriteFile(d.specPath(uid), text, 0o644)
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin.
func (d *Driver) UnprepareResourceClaims(ctx context.Context,
	claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := map[types.UID]error{}
	for _, c := range claims {
		all[c.UID] = d.record(ctx, "unprepare", c.Namespace, c.Name)
		if all[c.UID] == nil {
			delete(d.prepared, c.UID)
			_ = os.Remove(d.specPath(c.UID)) // the claim may have no specification
		}
	}
	return all, nil
}

// HandleError implements kubeletplugin.DRAPlugin. It records the error as a call; the library retries.
func (d *Driver) HandleError(_ context.Context, err error, msg string) {
	d.Record("error " + msg + ": " + err.Error())
}

// WatchHealthStatus implements kubeletplugin.DRAPlugin. A report is due at least every 30 s, and one that is late is an
// error of the driver.
func (d *Driver) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	const often = 10 * time.Second
	again := time.NewTicker(often)
	defer again.Stop()
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
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
	}
}
