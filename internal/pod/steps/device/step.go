package device

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/topology"
	"github.com/berth-run/berth/internal/pod/steps/device/record"
	"github.com/berth-run/berth/internal/pod/steps/device/supply"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/internal/record/event"
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
	return d.records.Forget(r.Pod.UID)
}

// ensure returns the plugin's answer for the devices that a container holds of a resource. It asks the plugin unless a
// valid answer is stored.
func (d *Devices) ensure(
	ctx context.Context, p *corev1.Pod, container string, name corev1.ResourceName,
) (record.Answer, error) {
	unlock, err := d.calls.Lock(ctx, string(p.UID)+" "+container+" "+string(name))
	if err != nil {
		return record.Answer{}, err
	}
	defer unlock()
	w, ok := d.want(p, container, name)
	if !ok {
		return record.Answer{}, fmt.Errorf("container %q holds no device of %s any more", container, name)
	}
	a, ok := d.records.Answers(p.UID)[container][name]
	if ok && a.Covers(w.ids, d.opts.Boot) {
		return a, nil
	}
	if a, err = d.allocate(ctx, p, w); err != nil {
		return record.Answer{}, err
	}
	d.records.SaveAnswer(p.UID, w.container, w.resource, a)
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
	for other, byName := range d.records.Answers(p.UID) {
		answer := byName[name]
		for _, id := range w.ids {
			if _, ok := answer.Nodes[id]; ok && other != container && answer.Boot == d.opts.Boot {
				w.fixed.Insert(id)
			}
		}
	}
	return w, true
}

// allocate waits for the plugin and calls its Allocate.
func (d *Devices) allocate(ctx context.Context, p *corev1.Pod, w want) (record.Answer, error) {
	plugin, err := d.await(ctx, p, w)
	if err != nil {
		return record.Answer{}, err
	}
	if plugin.Options.GetGetPreferredAllocationAvailable() {
		if w, err = d.prefer(ctx, p, w, plugin); err != nil {
			return record.Answer{}, err
		}
	}
	var resp *pluginapi.AllocateResponse
	err = d.timed(ctx, p, w, "Allocate", func(ctx context.Context) (err error) {
		began := d.opts.Now()
		resp, err = plugin.Allocate(ctx, &pluginapi.AllocateRequest{
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
			return record.Answer{}, ctx.Err()
		}
		refusal := reason.New(unexpected, "Allocate failed due to %w, which is unexpected", err)
		d.opts.Events.Event(event.PodRef(p), corev1.EventTypeWarning, unexpected, "%s", refusal.Message())
		return record.Answer{}, refusal
	}
	a := record.AnswerOf(resp.GetContainerResponses()[0])
	a.Boot, a.PreStart, a.Nodes = d.opts.Boot, plugin.Options.GetPreStartRequired(), map[device.ID]topology.Nodes{}
	for _, id := range w.ids {
		a.Nodes[id] = d.supply.Nodes(w.resource, id)
	}
	return a, nil
}

// await returns the plugin once it is registered and all devices of w are healthy.
func (d *Devices) await(ctx context.Context, p *corev1.Pod, w want) (*supply.Client, error) {
	for {
		serving, bad, changed := d.supply.Serving(w.resource, w.ids)
		var what string
		switch {
		case serving == nil:
			what = fmt.Sprintf("the device plugin of %s to register", w.resource)
		case len(bad) > 0:
			what = fmt.Sprintf("device %s of %s to be healthy", strings.Join(bad, ", "), w.resource)
		default:
			return serving, nil
		}
		done := d.waits.Begin(ctx, p.UID, w.container, what, statusDelay)
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
func (d *Devices) prefer(ctx context.Context, p *corev1.Pod, w want, plugin *supply.Client) (want, error) {
	inv, all := d.supply.Inventory(), d.opts.Ledger.All()
	request := device.Request{Resource: w.resource, Count: len(w.ids), Reusable: w.fixed}
	available, fixed := device.Choice(inv, all.Devices(), request, w.ids)
	if len(available) == len(w.ids) {
		return w, nil
	}
	var resp *pluginapi.PreferredAllocationResponse
	err := d.timed(ctx, p, w, "GetPreferredAllocation", func(ctx context.Context) (err error) {
		resp, err = plugin.GetPreferredAllocation(ctx, &pluginapi.PreferredAllocationRequest{
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
	now := device.Prefer(d.supply.Inventory(), all.Devices(), request, w.ids, preferred)
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
	what := fmt.Sprintf("the device plugin of %s to answer %s", w.resource, method)
	defer d.waits.Begin(ctx, p.UID, w.container, what, statusDelay)()
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
