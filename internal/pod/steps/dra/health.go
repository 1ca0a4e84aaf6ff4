package dra

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1"

	"github.com/berth-run/berth/internal/base/retry"
)

const (
	// healthTimeout is how long a device's health is valid if the driver names no time.
	healthTimeout = 30 * time.Second
	// healthRetry is the delay before a stream that ended is opened again.
	healthRetry = 5 * time.Second
)

// watchHealth records the health that a driver reports for its devices until its connection is closed or ctx ends. It
// stops if the driver does not implement the service.
func (d *drivers) watchHealth(ctx context.Context, p *driver) {
	for {
		err := d.streamHealth(ctx, p)
		if code := status.Code(err); code == codes.Unimplemented || code == codes.Canceled || ctx.Err() != nil {
			return
		}
		d.opts.Log.Debug("watch health of a DRA driver's devices failed, retrying", "driver", p.Name, "err", err)
		if retry.Sleep(ctx, healthRetry) != nil {
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
	expiry := time.AfterFunc(healthTimeout, func() { d.notify(p.Name) })
	defer expiry.Stop()
	for {
		report, err := stream.Recv()
		if err != nil {
			return err
		}
		changed, until := d.update(p.Name, report.GetDevices())
		if changed {
			d.notify(p.Name)
		}
		if !until.IsZero() {
			expiry.Reset(until.Sub(d.opts.Now()))
		}
	}
}

// update records a report, which may cover only some devices. until is when the first of them expires.
func (d *drivers) update(name string, devices []*drahealth.DeviceHealth) (changed bool, until time.Time) {
	now := d.opts.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, dev := range devices {
		key := deviceKey{name, dev.GetDevice().GetPoolName(), dev.GetDevice().GetDeviceName()}
		report := healthOf(dev, now)
		before, known := d.health[key]
		changed = changed || !known || before.status != report.status || before.message != report.message ||
			!now.Before(before.until)
		d.health[key] = report
		if until.IsZero() || report.until.Before(until) {
			until = report.until
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
	d.notify(name)
}

// notify updates the statuses of the pods that use a driver.
func (d *drivers) notify(name string) {
	for _, uid := range d.users(name) {
		d.opts.Statuses.Mark(uid)
	}
}

// healthOf converts a driver's report about a device.
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
