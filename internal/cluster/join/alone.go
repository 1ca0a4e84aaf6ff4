package join

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi"
)

// alone is the membership of a standalone agent.
type alone struct{ o Options }

// Access implements Membership.
func (a alone) Access() Access {
	return Access{Objects: object.New(a.o.Sources.Objects),
		Plugins: Plugins{Kinds: []volume.Kind{csi.Left{Root: a.o.Config.RootDir}}, Drivers: noDrivers{}}}
}

// Reports implements Membership.
func (alone) Reports(Node) Reports { return noReports{} }

// noDrivers are the drivers of a standalone agent.
type noDrivers struct{}

// Register implements Drivers.
func (noDrivers) Register(prometheus.Registerer) error { return nil }

// VolumeUsage implements Drivers.
func (noDrivers) VolumeUsage(string) (*statsapi.FsStats, bool) { return nil, false }

// VolumeAbnormal implements Drivers.
func (noDrivers) VolumeAbnormal(string) (abnormal, known bool) { return false, false }

// Users implements Drivers.
func (noDrivers) Users() []types.UID { return nil }

// Devices implements Drivers.
func (noDrivers) Devices(*corev1.Pod, string) ([]corev1.ResourceStatus, string) { return nil, "" }

// DynamicResources implements Drivers.
func (noDrivers) DynamicResources(*corev1.Pod, string) []*podresourcesapi.DynamicResource { return nil }

// noReports are the reports of a standalone agent.
type noReports struct{}

// Report implements Reports.
func (noReports) Report(fleet.Member, corev1.PodStatus) {}

// Flush implements Reports.
func (noReports) Flush(context.Context) error { return nil }

// Forget implements Reports.
func (noReports) Forget(types.UID) {}

// Register implements Reports.
func (noReports) Register(prometheus.Registerer) error { return nil }

// Run implements Reports.
func (noReports) Run(context.Context) error { return nil }
