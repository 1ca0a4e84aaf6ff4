package device

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/device/record"
)

// preStartLimit is how long a plugin may take to answer PreStartContainer.
const preStartLimit = pluginapi.KubeletPreStartContainerRPCTimeoutInSecs * time.Second

// PreCreate waits for the plugins' answers and adds them to the configuration of a container: device nodes, mounts,
// environment variables, annotations and CDI names.
func (d *Devices) PreCreate(ctx context.Context, p *corev1.Pod, c pod.Container,
	config *runtimeapi.ContainerConfig) error {
	answers, err := d.answersFor(ctx, p, c)
	if err != nil {
		return err
	}
	for _, conflict := range apply(config, answers) {
		d.opts.Log.Warn("device plugins contradict each other, first value used", "pod", pod.FullName(p),
			"container", c.Name, "ignored", conflict)
	}
	return nil
}

func (d *Devices) answersFor(
	ctx context.Context, p *corev1.Pod, c pod.Container,
) (map[corev1.ResourceName]record.Answer, error) {
	a, _ := d.opts.Ledger.Get(p.UID)
	given := a.Containers[c.Name].Devices
	for name := range d.supply.Inventory().Requests(c.Resources.Limits) {
		if len(given[name]) == 0 {
			return nil,
				reason.New(unexpected,
					"the container requests %s but holds none any more; next: delete the pod and create it again", name)
		}
	}
	if len(given) == 0 {
		return nil, nil
	}
	all := make(map[corev1.ResourceName]record.Answer, len(given))
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if len(given[name]) == 0 {
			continue
		}
		answer, err := d.ensure(ctx, p, c.Name, name)
		if err != nil {
			return nil, err
		}
		all[name] = answer
	}
	return all, nil
}

// PreStart calls PreStartContainer of each plugin that requires it.
func (d *Devices) PreStart(ctx context.Context, p *corev1.Pod, c pod.Container, _ string) error {
	answers, err := d.answersFor(ctx, p, c)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(answers)) {
		if !answers[name].PreStart {
			continue
		}
		if err := d.preStart(ctx, name, answers[name]); err != nil {
			return reason.Wrap(reason.CreateContainerConfigError,
				fmt.Errorf("device plugin PreStartContainer rpc failed with err: %w", err))
		}
	}
	return nil
}

func (d *Devices) preStart(ctx context.Context, name corev1.ResourceName, a record.Answer) error {
	plugin, _, _ := d.supply.Serving(name, nil)
	if plugin == nil {
		return errors.New("the device plugin of " + string(name) + " is not registered")
	}
	return limited(ctx, preStartLimit, name, "PreStartContainer", func(ctx context.Context) error {
		_, err := plugin.PreStartContainer(ctx, &pluginapi.PreStartContainerRequest{DevicesIds: a.IDs()})
		return err
	})
}
