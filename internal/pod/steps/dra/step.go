package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/internal/record/event"
)

// failedPrepare is the kubelet's event reason when a driver fails to prepare. failedUnprepare is the event reason when
// one fails to unprepare; the kubelet only logs that.
const (
	failedPrepare   = "FailedPrepareDynamicResources"
	failedUnprepare = "FailedUnprepareDynamicResources"
)

// Delays between attempts to use a claim that is not ready. The registration of a driver ends a delay early.
const (
	retryFirst = 500 * time.Millisecond
	retryMax   = 10 * time.Second
)

// statusDelay is how long a pod waits for a driver's answer before its status shows the wait.
const statusDelay = time.Second

// StepName is the name of the step, for the steps that wait for it.
const StepName = "dra"

// Step prepares the claims of a pod before its sandbox starts, and unprepares them when nothing of the pod runs.
func (c *Claims) Step() worker.Step {
	return worker.Step{Name: StepName, Phase: worker.Prepare, Setup: c.setup, Teardown: c.teardown}
}

// setup waits until the claims are allocated, their drivers are registered and the API server answers. It fails if a
// driver fails.
func (c *Claims) setup(ctx context.Context, r *worker.Run) (err error) {
	if !wants(r.Pod.Pod) {
		return nil
	}
	retries, shown, done := retry.Doubling(retryFirst, retryMax), "", func() {}
	delay := retries.Step()
	defer func() { done() }()
	for {
		changed := c.drivers.changed.C()
		p := c.newest(r.Pod.Pod)
		lacks, err := c.try(ctx, p, r.Observed.Running())
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			c.opts.Events.Event(event.PodRef(p), corev1.EventTypeWarning, failedPrepare,
				"Failed to prepare dynamic resources: %v", err)
			return reason.New(failedPrepare, "prepare dynamic resources: %w", err)
		}
		if lacks == "" {
			return nil
		}
		if lacks != shown {
			done()
			shown, done = lacks, c.waits.Begin(ctx, p.UID, "", lacks, 0)
		}
		timer := time.NewTimer(delay)
		select {
		case <-changed:
		case <-timer.C:
			delay = retries.Step()
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// try prepares the claims of a pod, or returns what it still lacks. If containers of the pod run, its claims were
// prepared by this agent or a kubelet.
func (c *Claims) try(ctx context.Context, p *corev1.Pod, runs bool) (lacks string, err error) {
	all, missing := needs(p)
	if missing != "" {
		return missing, nil
	}
	keys := make([]string, len(all))
	for i, n := range all {
		keys[i] = p.Namespace + "/" + n.claim
	}
	unlock, err := c.locks.LockAll(ctx, keys...)
	if err != nil {
		return "", err
	}
	defer unlock()
	var found []*record
	for i, n := range all {
		switch kept := c.snapshot()[keys[i]]; {
		case kept == nil || !kept.PodUIDs.Has(string(p.UID)) || kept.PreparedBoot != c.opts.Boot && !runs:
			r, lacks, err := c.find(ctx, p, n, kept)
			if lacks != "" || err != nil {
				return lacks, err
			}
			found = append(found, r)
		case kept.PreparedBoot != c.opts.Boot: // a kubelet prepared it; its records have no boot id
			prepared := kept.clone()
			prepared.PreparedBoot = c.opts.Boot
			found = append(found, prepared)
		}
	}
	if len(found) == 0 {
		return "", nil
	}
	start := c.opts.Now()
	err = c.prepare(ctx, p.UID, found)
	c.metrics.operation("PrepareResources", err, c.opts.Now().Sub(start))
	return "", err
}

// find returns the record of a claim that the pod does not have yet, or what the claim and its drivers still lack. kept
// is the existing record, or nil.
func (c *Claims) find(ctx context.Context, p *corev1.Pod, n need, kept *record) (r *record, lacks string, err error) {
	if c.opts.Client == nil {
		return nil, "",
			fmt.Errorf("ResourceClaim %s: this node belongs to no cluster; next: run the agent with --kubeconfig",
				n.claim)
	}
	if kept != nil && kept.PodUIDs.Has(string(p.UID)) && c.opts.StandsIn != nil && c.opts.StandsIn.Load() {
		r = kept.clone() // the pod had the claim before the reboot
	} else if r, lacks, err = c.read(ctx, p, n, kept); r == nil {
		return nil, lacks, err
	}
	for _, name := range r.drivers() {
		if c.drivers.of(name) == nil {
			return nil, fmt.Sprintf("DRA driver %s to register, which prepares ResourceClaim %s", name, n.claim), nil
		}
	}
	return r, "", nil
}

// read gets a claim from the API server. r is nil while the claim lacks something.
func (c *Claims) read(ctx context.Context, p *corev1.Pod, n need, kept *record) (r *record, lacks string, err error) {
	claim, err := c.opts.Client.ResourceV1().ResourceClaims(p.Namespace).Get(ctx, n.claim, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Sprintf("ResourceClaim %s to be created", n.claim), nil
	}
	if err != nil {
		return nil, fmt.Sprintf("the API server to return ResourceClaim %s: %v", n.claim, err), nil
	}
	if lacks, err := usable(p, claim, n); lacks != "" || err != nil {
		return nil, lacks, err
	}
	switch {
	case kept == nil:
		return newRecord(claim), "", nil
	case kept.ClaimUID != claim.UID:
		return nil,
			fmt.Sprintf("the earlier ResourceClaim %s (%s) to be unprepared, which pods still use that have ended: %s",
				n.claim, kept.ClaimUID, strings.Join(slices.Sorted(maps.Keys(kept.PodUIDs)), ", ")), nil
	}
	return kept.clone(), "", nil
}

// prepare records the claims for the pod and calls the drivers of claims that are not prepared. The caller has the
// claims locked.
func (c *Claims) prepare(ctx context.Context, uid types.UID, found []*record) error {
	batches := map[string][]*record{}
	err := c.update(func(records map[string]*record) {
		for _, r := range found {
			r.PodUIDs.Insert(string(uid))
			records[r.key()] = r
		}
	})
	if err != nil {
		return err
	}
	for _, r := range found {
		for _, driver := range r.drivers() {
			if r.PreparedBoot != c.opts.Boot {
				batches[driver] = append(batches[driver], r)
			}
		}
	}
	prepared := map[string]*record{}
	for _, r := range found {
		prepared[r.key()] = r.clone()
	}
	for _, driver := range slices.Sorted(maps.Keys(batches)) {
		done := c.waits.Begin(ctx, uid, "",
			fmt.Sprintf("DRA driver %s to answer NodePrepareResources for ResourceClaim %s", driver,
				names(batches[driver])), statusDelay)
		answers, err := c.callPrepare(ctx, driver, batches[driver])
		done()
		if err != nil {
			return err
		}
		for _, r := range batches[driver] {
			prepared[r.key()].DriverState[driver] = answers[r.ClaimUID]
		}
	}
	return c.update(func(records map[string]*record) {
		for key, r := range prepared {
			r.PreparedBoot = c.opts.Boot
			records[key] = r
		}
	})
}

// callPrepare calls a driver for several claims. It fails if one of them fails.
func (c *Claims) callPrepare(ctx context.Context, driver string, records []*record) (map[types.UID]driverState, error) {
	p := c.drivers.of(driver)
	if p == nil {
		return nil, fmt.Errorf("DRA driver %s is not registered any more; next: start it again", driver)
	}
	request := &drapb.NodePrepareResourcesRequest{}
	for _, r := range records {
		request.Claims = append(request.Claims, r.claim())
	}
	resp, err := p.prepare(ctx, request)
	if err != nil {
		return nil,
			fmt.Errorf("DRA driver %s: NodePrepareResources of ResourceClaim %s: %w", driver, names(records), err)
	}
	states := map[types.UID]driverState{}
	for _, r := range records {
		answer, ok := resp.GetClaims()[string(r.ClaimUID)]
		switch {
		case !ok:
			return nil,
				fmt.Errorf("DRA driver %s does not answer NodePrepareResources for ResourceClaim %s", driver,
					r.ClaimName)
		case answer.GetError() != "":
			return nil,
				fmt.Errorf("DRA driver %s: NodePrepareResources failed for ResourceClaim %s: %s", driver, r.ClaimName,
					answer.GetError())
		}
		state := driverState{}
		for _, d := range answer.GetDevices() {
			state.Devices = append(state.Devices,
				device{d.GetPoolName(), d.GetDeviceName(), (*types.UID)(d.ShareId), d.GetRequestNames(),
					d.GetCdiDeviceIds()})
		}
		states[r.ClaimUID] = state
	}
	return states, nil
}

func names(records []*record) string {
	var all []string
	for _, r := range records {
		all = append(all, r.ClaimName)
	}
	return strings.Join(all, ", ")
}

// teardown releases the claims of the pod with this UID. It unprepares a claim that no other pod uses. It fails, and is
// retried, while a driver is away.
func (c *Claims) teardown(ctx context.Context, r *worker.Run) error {
	uid := string(r.Pod.UID)
	var keys []string
	for key, rec := range c.snapshot() {
		if rec.PodUIDs.Has(uid) {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	unlock, err := c.locks.LockAll(ctx, keys...)
	if err != nil {
		return err
	}
	defer unlock()
	start := c.opts.Now()
	err = c.unprepare(ctx, uid, keys)
	c.metrics.operation("UnprepareResources", err, c.opts.Now().Sub(start))
	if err != nil && ctx.Err() == nil {
		c.opts.Log.Warn("unprepare claims of a pod failed, retrying", "pod", r.Pod.UID, "err", err)
		if r.Pod.Name != "" { // without a name only the UID is known
			c.opts.Events.Event(event.PodRef(r.Pod.Pod), corev1.EventTypeWarning, failedUnprepare,
				"Failed to unprepare dynamic resources: %v", err)
		}
		return fmt.Errorf("unprepare dynamic resources: %w", err)
	}
	return err
}

func (c *Claims) unprepare(ctx context.Context, uid string, keys []string) error {
	batches, ended := map[string][]*record{}, map[string]bool{}
	records := c.snapshot()
	for _, key := range keys {
		r := records[key]
		if r == nil || !r.PodUIDs.Has(uid) {
			continue
		}
		ended[key] = true
		if len(r.PodUIDs) > 1 {
			continue
		}
		for _, driver := range r.drivers() {
			batches[driver] = append(batches[driver], r)
		}
	}
	var errs []error
	for _, driver := range slices.Sorted(maps.Keys(batches)) {
		for r, err := range c.callUnprepare(ctx, driver, batches[driver]) {
			delete(ended, r.key())
			errs = append(errs, err)
		}
	}
	if len(ended) > 0 {
		errs = append(errs, c.update(func(records map[string]*record) {
			for key := range ended {
				if r := records[key].clone(); len(r.PodUIDs) > 1 {
					r.PodUIDs.Delete(uid)
					records[key] = r
				} else {
					delete(records, key)
				}
			}
		}))
	}
	return errors.Join(errs...)
}

// callUnprepare calls NodeUnprepareResources of a driver. It returns the claims that failed, with their errors.
func (c *Claims) callUnprepare(ctx context.Context, driver string, records []*record) map[*record]error {
	failed := map[*record]error{}
	p := c.drivers.of(driver)
	request := &drapb.NodeUnprepareResourcesRequest{}
	for _, r := range records {
		request.Claims = append(request.Claims, r.claim())
		if p == nil {
			failed[r] = fmt.Errorf(
				"ResourceClaim %s: DRA driver %s is not registered; next: start it again, so that it can release "+
					"the devices", r.key(), driver)
		}
	}
	if p == nil {
		return failed
	}
	resp, err := p.unprepare(ctx, request)
	for _, r := range records {
		answer, ok := resp.GetClaims()[string(r.ClaimUID)]
		switch {
		case err != nil:
			failed[r] = fmt.Errorf("DRA driver %s: NodeUnprepareResources of ResourceClaim %s: %w", driver, r.key(),
				err)
		case !ok:
			failed[r] = fmt.Errorf("DRA driver %s does not answer NodeUnprepareResources for ResourceClaim %s", driver,
				r.key())
		case answer.GetError() != "":
			failed[r] = fmt.Errorf("DRA driver %s: NodeUnprepareResources failed for ResourceClaim %s: %s", driver,
				r.key(), answer.GetError())
		}
	}
	return failed
}

// newest returns the desired version of a pod, or the given one if there is none.
func (c *Claims) newest(p *corev1.Pod) *corev1.Pod {
	if c.opts.Desired != nil {
		if desired, ok := c.opts.Desired.Get(p.UID); ok {
			return desired.Pod
		}
	}
	return p
}

// PreCreate adds the CDI names of the devices that a container may use to its configuration.
func (c *Claims) PreCreate(_ context.Context, p *corev1.Pod, ctr pod.Container,
	config *runtimeapi.ContainerConfig) error {
	if !wants(p) {
		return nil
	}
	p = c.newest(p)
	all, missing := uses(p, ctr.Container)
	if missing != "" {
		return reason.New(reason.CreateContainerConfigError, "container %q uses %s, which does not exist", ctr.Name,
			missing)
	}
	records := c.snapshot()
	for _, u := range all {
		r := records[p.Namespace+"/"+u.claim]
		if r == nil || r.PreparedBoot != c.opts.Boot || !r.PodUIDs.Has(string(p.UID)) {
			return reason.New(reason.CreateContainerConfigError,
				"container %q uses ResourceClaim %s, which is not prepared for the pod", ctr.Name, u.claim)
		}
		for _, d := range r.devices(u.request) {
			for _, id := range d.CDIDeviceIDs {
				if !slices.ContainsFunc(config.CDIDevices, func(o *runtimeapi.CDIDevice) bool { return o.Name == id }) {
					config.CDIDevices = append(config.CDIDevices, &runtimeapi.CDIDevice{Name: id})
				}
			}
		}
	}
	return nil
}
