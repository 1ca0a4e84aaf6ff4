package dra

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1"
)

const (
	// healthTimeout is how long a device's health counts if the driver does not say.
	healthTimeout = 30 * time.Second
	// healthRetry is the pause between two streams of one driver.
	healthRetry = 5 * time.Second
)

// watchHealth takes over what a driver tells of its devices until its connection is
// closed or ctx ends. A driver that does not serve it is not asked again.
func (d *drivers) watchHealth(ctx context.Context, p *driver) {
	for {
		err := d.streamHealth(ctx, p)
		if code := status.Code(err); code == codes.Unimplemented || code == codes.Canceled || ctx.Err() != nil {
			return
		}
		d.opts.Log.Debug("health of a DRA driver's devices", "driver", p.Name, "err", err)
		select {
		case <-time.After(healthRetry):
		case <-ctx.Done():
			return
		}
	}
}

func (d *drivers) streamHealth(ctx context.Context, p *driver) error {
	stream, err := p.health.NodeWatchResources(ctx, &drahealth.NodeWatchResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	defer d.forgetHealth(p.Name)
	expiry := time.AfterFunc(healthTimeout, func() { d.tell(p.Name) })
	defer expiry.Stop()
	for {
		report, err := stream.Recv()
		if err != nil {
			return err
		}
		changed, until := d.reported(p.Name, report.GetDevices())
		if changed {
			d.tell(p.Name)
		}
		if !until.IsZero() {
			expiry.Reset(until.Sub(d.opts.Now()))
		}
	}
}

// reported takes over a report, which may be of some devices only. until is when the
// first of them counts no more.
func (d *drivers) reported(name string, devices []*drahealth.DeviceHealth) (changed bool, until time.Time) {
	now := d.opts.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, dev := range devices {
		key := deviceKey{name, dev.GetDevice().GetPoolName(), dev.GetDevice().GetDeviceName()}
		said := healthOf(dev, now)
		before, known := d.health[key]
		changed = changed || !known || before.status != said.status || before.message != said.message ||
			!now.Before(before.until)
		d.health[key] = said
		if until.IsZero() || said.until.Before(until) {
			until = said.until
		}
	}
	return changed, until
}

func (d *drivers) forgetHealth(name string) {
	d.mu.Lock()
	for key := range d.health {
		if key.driver == name {
			delete(d.health, key)
		}
	}
	d.mu.Unlock()
	d.tell(name)
}

// tell has the statuses of a driver's pods made anew.
func (d *drivers) tell(name string) {
	for _, uid := range d.users(name) {
		d.opts.Affected(uid)
	}
}

// healthOf is what a driver says of a device, as it counts from now.
func healthOf(dev *drahealth.DeviceHealth, now time.Time) health {
	h := health{status: corev1.ResourceHealthStatusUnknown, message: dev.GetMessage(), until: now.Add(healthTimeout)}
	switch dev.GetHealth() {
	case drahealth.HealthStatus_HEALTHY:
		h.status = corev1.ResourceHealthStatusHealthy
	case drahealth.HealthStatus_UNHEALTHY:
		h.status = corev1.ResourceHealthStatusUnhealthy
	case drahealth.HealthStatus_UNKNOWN:
	}
	if s := dev.GetHealthCheckTimeoutSeconds(); s > 0 {
		h.until = now.Add(time.Duration(s) * time.Second)
	}
	if len(h.message) > corev1.ResourceHealthMessageMaxLength {
		h.message = h.message[:corev1.ResourceHealthMessageMaxLength-len("...")] + "..."
	}
	return h
}
