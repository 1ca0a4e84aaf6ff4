package agent

import (
	"errors"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api/podresources"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/pod/steps/device"
)

// deviceHoldings is the record of the devices that pods hold.
type deviceHoldings interface {
	Get(types.UID) (resource.Allocation, bool)
	All() resource.Held
	Rebuild(map[types.UID]resource.Allocation) ([]resource.Lost, error)
	TakeOver(map[types.UID]resource.Allocation) ([]resource.Lost, error)
	SetDevices(uid types.UID, container string, name corev1.ResourceName, ids []string) error
}

// newDevices makes the part that talks to device plugins. When a plugin's devices change, admission checks the waiting
// pods again. When the health of a device changes, the pods that hold it get a new status.
func newDevices(a *Agent, held deviceHoldings) *device.Devices {
	c := a.Config
	d := device.New(device.Options{
		Dir: filepath.Join(c.RootDir, "device-plugins"), State: filepath.Join(c.RootDir, "devices"),
		Machine: a.steps.allocations.Nodes(), Boot: a.machine.facts.Info.BootID,
		Ledger: held, Admission: a.tables.fleet, Statuses: a.tables.stale,
		Metrics: a.metrics, Events: a.records.events, Now: time.Now, Log: a.Log,
	})
	logDamage(a.Log, d.Load())
	_, takenErr := held.TakeOver(d.Records().FromKubelet())
	_, err := held.Rebuild(d.Records().Held())
	logDamage(a.Log, errors.Join(takenErr, err))
	return d
}

// newPodResources makes the PodResources API.
func newPodResources(a *Agent) *podresources.Server {
	held := a.steps.allocations
	return podresources.New(podresources.Options{
		Socket: filepath.Join(a.Config.RootDir, "pod-resources", "kubelet.sock"), Pods: a.tables.fleet, Ledger: held,
		Devices: a.steps.devices, Claims: a.demand.cluster.Plugins(), Log: a.Log,
	})
}
