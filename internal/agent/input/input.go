package input

import (
	"context"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/agent/engine"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/cluster/nodeobject"
	"github.com/berth-run/berth/internal/cluster/nodeview"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/condition"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/pod/admission"
	"github.com/berth-run/berth/internal/pod/source"
	"github.com/berth-run/berth/internal/pod/steps/allocation"
	"github.com/berth-run/berth/internal/pod/steps/userns"
)

// pluginPatience is how long a device plugin may take to come back after the agent started or a pod appeared. A kubelet
// keeps the devices of a missing plugin for the same time.
const pluginPatience = 5 * time.Minute

// Node is this node as the rules of admission see it.
type Node struct {
	Config *config.Config
	// Began is when this agent started.
	Began   time.Time
	Engine  *engine.Engine
	Sources *source.Sources
	Objects *object.Objects
	Ledger  *allocation.Allocations
	// View is the Node object, or the machine without a cluster.
	View       nodeview.View
	Conditions *condition.Table
}

// Of returns the input of the rules about a pod, without the other pods.
func (n Node) Of(p *pod.Pod) admission.In {
	in := admission.In{
		Pod: p.Pod, Node: n.View.Facts, Supplied: n.Sources.Supplies, RuntimeClass: n.Objects.RuntimeClass,
		Config: n.settings(p), Now: time.Now(), PluginsBy: n.pluginsBy(p.Seen),
		Pressure: n.Conditions.UnderPressure(),
	}
	in.Node.Labels = n.View.Labels()
	seen := n.View.Node()
	if seen != nil {
		in.Config.Taints, in.Offered = seen.Spec.Taints, seen.Status.Allocatable
	}
	if p.Source == pod.SourceAPI {
		in.Config.NodeUnknown, in.Config.NodeOld = seen == nil, n.View.Latest.AsOf().Before(p.Seen)
	}
	in.Devices = n.Ledger.Node().Devices
	in.Given, _ = n.Ledger.Get(p.UID)
	in.Allot = func(beside []types.UID) (resource.Allocation, error) { return n.Ledger.Allot(p.Pod, beside) }
	return in
}

// settings returns the features of this node and what it allows. Without a cluster its taints come from the
// configuration.
func (n Node) settings(p *pod.Pod) admission.Config {
	c := n.confinement(p.Pod)
	c.UnsafeSysctls, c.Taints = n.Config.Pods.AllowedUnsafeSysctls, n.Config.Node.Taints
	c.Handlers = n.Engine.Handlers()
	c.NoPodLevel, c.OwnReferences = n.Config.Disabled.Resources.PodLevel, n.Config.Disabled.OwnReferences
	c.Declared = nodeobject.Declared(n.Config.Disabled, n.Config.Server.HTTPS.IsValid())
	c.StaticCritical = n.Config.Sources.StaticCritical
	if userns.Wanted(p.Pod) {
		c.NoUserNamespaces = text(n.Engine.CheckUserns(p.Pod))
	}
	return c
}

// confinement returns the rights that this node can give to the containers of a pod now.
func (n Node) confinement(p *corev1.Pod) admission.Config {
	c := admission.Config{
		AppArmor: appArmor(), SupplementalGroupsPolicy: n.Engine.Features().GetSupplementalGroupsPolicy(),
		Standalone: n.Config.Cluster == nil,
	}
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err == nil {
		c.NoSELinux = n.Engine.NoSELinux
	}
	if pod.Privileged(p) {
		c.NoPrivileges = text(n.Engine.CheckPrivileges())
	}
	if userns.Wanted(p) {
		c.NoProc = text(n.Engine.CheckProc())
	}
	return c
}

// text returns the text of an error, "" for none.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// PreCreate refuses a container that this node cannot start any more with the rights that its pod asks for
// (container.Lifecycle). The rules of admission were checked before the pod started; the machine or the runtime may
// have changed since.
func (n Node) PreCreate(_ context.Context, p *corev1.Pod, _ pod.Container, _ *runtimeapi.ContainerConfig) error {
	if a := admission.Confines(admission.In{Pod: p, Config: n.confinement(p)}); a.Verdict != admission.Admitted {
		return reason.New(reason.Blocked, "%s", a.Message)
	}
	return nil
}

// RuntimeStatus passes on each status of the runtime. When the runtime's features or handlers have changed, admission
// decides again about the pods that wait for them, and blocked containers are started again.
type RuntimeStatus struct {
	Engine *engine.Engine
	Fleet  fleet
	// Conditions show the status of the runtime. nil: nothing shows it.
	Conditions cri.Conditions
}

// fleet has the pods of this node.
type fleet interface {
	// Reconsider repeats admission for the pods that wait for it.
	Reconsider()
	// Retry retries at once whatever has failed with a matching error.
	Retry(matches func(error) bool)
}

// SetRuntimeStatus implements cri.Conditions.
func (r RuntimeStatus) SetRuntimeStatus(s *runtimeapi.StatusResponse) {
	if r.Engine.SetStatus(s) {
		r.Fleet.Reconsider()
		r.Fleet.Retry(func(err error) bool { return reason.Of(err) == reason.Blocked })
	}
	if r.Conditions != nil {
		r.Conditions.SetRuntimeStatus(s)
	}
}

// pluginsBy returns the time until which a pod waits for a device plugin to come back.
func (n Node) pluginsBy(seen time.Time) time.Time {
	if seen.Before(n.Began) {
		seen = n.Began
	}
	return seen.Add(pluginPatience)
}

// appArmor reports whether the kernel enforces AppArmor profiles.
func appArmor() bool {
	text, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && strings.HasPrefix(string(text), "Y")
}
