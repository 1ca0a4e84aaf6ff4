package device

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/topology"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/timeline"
)

const (
	// callLimit is how long a plugin may take to answer. Kubernetes sets no limit. This one frees a start from a plugin
	// that hangs; the call is repeated.
	callLimit = 2 * time.Minute
	// statusDelay is how long a container waits for a plugin before its status shows the wait.
	statusDelay = time.Second
)

// unexpected is the kubelet's reason for a pod whose plugin refuses to allocate.
const unexpected = "UnexpectedAdmissionError"

// Step calls Allocate for the devices that a pod holds, before its containers start. No other step waits for it: each
// container waits for its own devices.
func (d *Devices) Step() worker.Step {
	return worker.Step{Name: "device", Phase: worker.Prepare, Setup: d.setup, Teardown: d.teardown}
}

// setup succeeds even if a plugin refuses. The container's start then fails with the reason and is retried. Containers
// that run already have their devices.
func (d *Devices) setup(ctx context.Context, r *worker.Run) error {
	a, _ := d.opts.Ledger.Get(r.Pod.UID)
	if len(a.Containers) == 0 {
		return nil
	}
	for _, w := range wants(r.Pod.Pod, a) {
		if seen, ok := r.Observed.Container(w.container); ok && seen.State == pod.StateRunning {
			continue
		}
		_, err := d.ensure(ctx, r.Pod.Pod, w.container, w.resource)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			d.opts.Log.Warn("allocate devices failed, retrying at the container's start", "pod",
				pod.FullName(r.Pod.Pod), "container", w.container, "resource",
				w.resource, "err", err)
		}
	}
	return nil
}

// teardown deletes the answers. The API has no call to notify the plugin.
func (d *Devices) teardown(_ context.Context, r *worker.Run) error {
	uid := r.Pod.UID
	d.writing.Lock()
	defer d.writing.Unlock()
	d.mu.Lock()
	_, kept := d.answers[uid]
	delete(d.answers, uid)
	delete(d.waits, uid)
	d.mu.Unlock()
	if !kept {
		return nil
	}
	err := d.kept.DeleteUnsynced(string(uid))
	d.saved()
	return err
}

// ensure returns the plugin's answer for the devices that a container holds of a resource. It asks the plugin unless a
// valid answer is stored.
func (d *Devices) ensure(ctx context.Context, p *corev1.Pod, container string, name corev1.ResourceName) (Answer,
	error) {
	leave, err := d.calls.enter(ctx, call{p.UID, container, name})
	if err != nil {
		return Answer{}, err
	}
	defer leave()
	w, ok := d.want(p, container, name)
	if !ok {
		return Answer{}, fmt.Errorf("container %q holds no device of %s any more", container, name)
	}
	d.mu.Lock()
	a, ok := d.answers[p.UID][container][name]
	d.mu.Unlock()
	if ok && a.covers(w.ids, d.opts.Boot) {
		return a, nil
	}
	if a, err = d.allocate(ctx, p, w); err != nil {
		return Answer{}, err
	}
	d.save(p.UID, w, a)
	return a, nil
}

// want returns the devices that the ledger holds for one container and resource. Devices that an answer covers already
// are fixed and will not be exchanged.
func (d *Devices) want(p *corev1.Pod, container string, name corev1.ResourceName) (want, bool) {
	a, _ := d.opts.Ledger.Get(p.UID)
	all := wants(p, a)
	i := slices.IndexFunc(all, func(w want) bool { return w.container == container && w.resource == name })
	if i < 0 {
		return want{}, false
	}
	w := all[i]
	d.mu.Lock()
	defer d.mu.Unlock()
	for other, byName := range d.answers[p.UID] {
		answer := byName[name]
		for _, id := range w.ids {
			if _, ok := answer.Nodes[id]; ok && other != container && answer.Boot == d.opts.Boot {
				w.fixed.Insert(id)
			}
		}
	}
	return w, true
}

// save stores an answer. If the write fails, the next agent calls the plugin's Allocate again.
func (d *Devices) save(uid types.UID, w want, a Answer) {
	d.writing.Lock()
	defer d.writing.Unlock()
	d.mu.Lock()
	all := d.answers[uid].with(w.container, w.resource, a)
	d.answers[uid] = all
	d.mu.Unlock()
	if err := d.kept.SaveUnsynced(string(uid), all); err != nil {
		d.opts.Log.Error("save answer of device plugin failed; it is asked again after a restart", "pod", uid,
			"resource", w.resource, "err", err)
	}
	d.saved()
}

// allocate waits for the plugin and calls its Allocate.
func (d *Devices) allocate(ctx context.Context, p *corev1.Pod, w want) (Answer, error) {
	plugin, err := d.await(ctx, p, w)
	if err != nil {
		return Answer{}, err
	}
	if plugin.options.GetGetPreferredAllocationAvailable() {
		if w, err = d.prefer(ctx, p, w, plugin); err != nil {
			return Answer{}, err
		}
	}
	var resp *pluginapi.AllocateResponse
	err = d.timed(ctx, p, w, "Allocate", func(ctx context.Context) (err error) {
		began := d.opts.Now()
		resp, err = plugin.client.Allocate(ctx, &pluginapi.AllocateRequest{
			ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: w.ids}},
		})
		d.metrics.allocated(w.resource, d.opts.Now().Sub(began))
		return err
	})
	if err == nil && len(resp.GetContainerResponses()) == 0 {
		err = fmt.Errorf("no containers return in allocation response %v", resp)
	}
	if err != nil {
		if ctx.Err() != nil {
			return Answer{}, ctx.Err()
		}
		refusal := reason.New(unexpected, "Allocate failed due to %w, which is unexpected", err)
		d.opts.Events.Event(event.PodRef(p), corev1.EventTypeWarning, unexpected, "%s", refusal.Message())
		return Answer{}, refusal
	}
	a := answerOf(resp.GetContainerResponses()[0])
	a.Boot, a.PreStart, a.Nodes = d.opts.Boot, plugin.options.GetPreStartRequired(), map[device.ID]topology.Nodes{}
	for _, id := range w.ids {
		a.Nodes[id] = nodesOf(d.Inventory()[w.resource], id)
	}
	return a, nil
}

// await returns the plugin once it is registered and all devices of w are healthy.
func (d *Devices) await(ctx context.Context, p *corev1.Pod, w want) (*plugin, error) {
	for {
		serving, bad, changed := d.serving(w.resource, w.ids)
		var what string
		switch {
		case serving == nil:
			what = fmt.Sprintf("the device plugin of %s to register", w.resource)
		case len(bad) > 0:
			what = fmt.Sprintf("device %s of %s to be healthy", strings.Join(bad, ", "), w.resource)
		default:
			return serving, nil
		}
		done := d.waiting(ctx, p.UID, w.container, what)
		select {
		case <-changed:
		case <-ctx.Done():
		}
		done()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// prefer asks the plugin which devices it prefers and exchanges them in the ledger. If the plugin fails to answer, the
// devices stay.
func (d *Devices) prefer(ctx context.Context, p *corev1.Pod, w want, plugin *plugin) (want, error) {
	inv, all := d.Inventory(), d.opts.Ledger.All()
	request := device.Request{Resource: w.resource, Count: len(w.ids), Reusable: w.fixed}
	available, fixed := device.Choice(inv, all.Devices(), request, w.ids)
	if len(available) == len(w.ids) {
		return w, nil
	}
	var resp *pluginapi.PreferredAllocationResponse
	err := d.timed(ctx, p, w, "GetPreferredAllocation", func(ctx context.Context) (err error) {
		resp, err = plugin.client.GetPreferredAllocation(ctx, &pluginapi.PreferredAllocationRequest{
			ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{
				{AvailableDeviceIDs: available, MustIncludeDeviceIDs: fixed, AllocationSize: int32(len(w.ids))},
			},
		})
		return err
	})
	if ctx.Err() != nil {
		return w, ctx.Err()
	}
	if err != nil {
		d.opts.Log.Warn("get preferred devices of plugin failed, devices not exchanged", "resource", w.resource, "err",
			err)
		return w, nil
	}
	if len(resp.GetContainerResponses()) == 0 {
		return w, nil
	}
	return d.exchange(p, w, resp.GetContainerResponses()[0].GetDeviceIDs())
}

// exchange replaces devices in the ledger with preferred ones that are still free.
func (d *Devices) exchange(p *corev1.Pod, w want, preferred []device.ID) (want, error) {
	d.exchanging.Lock()
	defer d.exchanging.Unlock()
	all := d.opts.Ledger.All()
	request := device.Request{Resource: w.resource, Count: len(w.ids), Reusable: w.fixed}
	now := device.Prefer(d.Inventory(), all.Devices(), request, w.ids, preferred)
	for container, ids := range exchanged(all[p.UID], w.resource, w.ids, now) {
		if err := d.opts.Ledger.SetDevices(p.UID, container, w.resource, ids); err != nil {
			return w, fmt.Errorf("book the devices that the plugin of %s prefers: %w", w.resource, err)
		}
	}
	w.ids = now
	return w, nil
}

// timed makes one call of a plugin within callLimit, and shows it as the cause of the container's wait.
func (d *Devices) timed(ctx context.Context, p *corev1.Pod, w want, method string,
	f func(context.Context) error) error {
	defer d.waiting(ctx, p.UID, w.container, fmt.Sprintf("the device plugin of %s to answer %s", w.resource, method))()
	return limited(ctx, callLimit, w.resource, method, f)
}

// limited calls f with a time limit. After the limit its error names the plugin and the method.
func limited(ctx context.Context, limit time.Duration, name corev1.ResourceName, method string,
	f func(context.Context) error) error {
	late := fmt.Errorf("the device plugin of %s has not answered %s within %v", name, method, limit)
	call, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	err := f(call)
	if err != nil && errors.Is(context.Cause(call), late) {
		return late
	}
	return err
}

// waiting records what a container waits for until done is called: in the timeline at once, and in the container's
// status after statusDelay.
func (d *Devices) waiting(ctx context.Context, uid types.UID, container, what string) (done func()) {
	ended := timeline.Wait(ctx, what)
	over, shown := false, false
	timer := time.AfterFunc(statusDelay, func() {
		d.mu.Lock()
		shown = !over
		if shown {
			if d.waits[uid] == nil {
				d.waits[uid] = map[string]string{}
			}
			d.waits[uid][container] = "waiting for " + what
		}
		d.mu.Unlock()
		if shown {
			d.opts.Affected(uid)
		}
	})
	return func() {
		ended()
		timer.Stop()
		d.mu.Lock()
		over = true
		delete(d.waits[uid], container)
		if len(d.waits[uid]) == 0 {
			delete(d.waits, uid)
		}
		notify := shown
		d.mu.Unlock()
		if notify {
			d.opts.Affected(uid)
		}
	}
}

// call identifies a call of a plugin. Equal calls run one after the other.
type call struct {
	uid       types.UID
	container string
	resource  corev1.ResourceName
}

// calls holds the calls that run now.
type calls struct {
	mu   sync.Mutex
	busy map[call]chan struct{}
}

// enter waits until no equal call runs.
func (c *calls) enter(ctx context.Context, k call) (leave func(), err error) {
	for {
		c.mu.Lock()
		other, busy := c.busy[k]
		if !busy {
			mine := make(chan struct{})
			c.busy[k] = mine
			c.mu.Unlock()
			return func() {
				c.mu.Lock()
				delete(c.busy, k)
				c.mu.Unlock()
				close(mine)
			}, nil
		}
		c.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
