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
	// callLimit is how long a plugin may take for one answer. Kubernetes has no
	// limit; this one is for a plugin that hangs, and the call is made again.
	callLimit = 2 * time.Minute
	// quietly is how long a container waits for a plugin before its status says so.
	quietly = time.Second
)

// unexpected is the kubelet's reason when a plugin refuses.
const unexpected = "UnexpectedAdmissionError"

// Step has plugins answer for what a pod holds, ahead of the starts of its
// containers. No other step waits for it: a container waits for its own devices.
func (d *Devices) Step() worker.Step {
	return worker.Step{Name: "device", Phase: worker.Prepare, Setup: d.setup, Teardown: d.teardown}
}

// setup succeeds also when a plugin refuses: the container's start says so, with its
// reason, and tries again. A container that runs has its devices.
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
			d.opts.Log.Warn("ask device plugin", "pod", pod.FullName(r.Pod.Pod), "container", w.container, "resource",
				w.resource, "err", err)
		}
	}
	return nil
}

// teardown forgets the answers. Plugins are not told: the API has no word for it.
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

// ensure has the plugin's answer for what a container holds of a resource: the one
// that is kept, or a new one.
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
	if ok && a.is(w.ids, d.opts.Boot) {
		return a, nil
	}
	if a, err = d.ask(ctx, p, w); err != nil {
		return Answer{}, err
	}
	d.keep(p.UID, w, a)
	return a, nil
}

// want is what the ledger has for one container and resource. What has been
// answered for is not exchanged any more, as if an earlier container held it.
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

// keep takes an answer down. It is asked for again if the disk refuses and the agent
// restarts.
func (d *Devices) keep(uid types.UID, w want, a Answer) {
	d.writing.Lock()
	defer d.writing.Unlock()
	d.mu.Lock()
	all := d.answers[uid].with(w.container, w.resource, a)
	d.answers[uid] = all
	d.mu.Unlock()
	if err := d.kept.SaveUnsynced(string(uid), all); err != nil {
		d.opts.Log.Error("keep the answer of a device plugin", "pod", uid, "resource", w.resource, "err", err)
	}
	d.saved()
}

// ask waits for the plugin and has it allocate.
func (d *Devices) ask(ctx context.Context, p *corev1.Pod, w want) (Answer, error) {
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

// await returns the plugin once it serves and all that the container is to have is
// healthy.
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

// prefer asks the plugin which devices it would rather give, and exchanges those. One
// that fails to say has no preference.
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
		d.opts.Log.Warn("ask device plugin for its preference", "resource", w.resource, "err", err)
		return w, nil
	}
	if len(resp.GetContainerResponses()) == 0 {
		return w, nil
	}
	return d.exchange(p, w, resp.GetContainerResponses()[0].GetDeviceIDs())
}

// exchange has the ledger take what a plugin prefers of what is free by now.
func (d *Devices) exchange(p *corev1.Pod, w want, preferred []device.ID) (want, error) {
	d.giving.Lock()
	defer d.giving.Unlock()
	all := d.opts.Ledger.All()
	request := device.Request{Resource: w.resource, Count: len(w.ids), Reusable: w.fixed}
	now := device.Prefer(d.Inventory(), all.Devices(), request, w.ids, preferred)
	for container, ids := range exchanged(all[p.UID], w.resource, w.ids, now) {
		if err := d.opts.Ledger.SetDevices(p.UID, container, w.resource, ids); err != nil {
			return w, fmt.Errorf("book what the device plugin of %s prefers: %w", w.resource, err)
		}
	}
	w.ids = now
	return w, nil
}

// timed makes one call of a plugin, within callLimit and told of.
func (d *Devices) timed(ctx context.Context, p *corev1.Pod, w want, method string,
	f func(context.Context) error) error {
	defer d.waiting(ctx, p.UID, w.container, fmt.Sprintf("the device plugin of %s to answer %s", w.resource, method))()
	return limited(ctx, callLimit, w.resource, method, f)
}

// limited names the plugin when it is out of time.
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

// waiting tells what a container waits for, until done is called: in the timeline,
// and after a moment in its status.
func (d *Devices) waiting(ctx context.Context, uid types.UID, container, what string) (done func()) {
	ended := timeline.Wait(ctx, what)
	over, told := false, false
	timer := time.AfterFunc(quietly, func() {
		d.mu.Lock()
		told = !over
		if told {
			if d.waits[uid] == nil {
				d.waits[uid] = map[string]string{}
			}
			d.waits[uid][container] = "waiting for " + what
		}
		d.mu.Unlock()
		if told {
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
		tell := told
		d.mu.Unlock()
		if tell {
			d.opts.Affected(uid)
		}
	}
}

// call is what is asked of a plugin, one at a time.
type call struct {
	uid       types.UID
	container string
	resource  corev1.ResourceName
}

// calls are those under way.
type calls struct {
	mu   sync.Mutex
	busy map[call]chan struct{}
}

// enter waits for the same call of others to end.
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
