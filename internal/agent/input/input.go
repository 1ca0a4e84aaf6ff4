package input

import (
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/agent/engine"
	"github.com/berth-run/berth/internal/cluster/nodeobject"
	"github.com/berth-run/berth/internal/cluster/nodeview"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
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
	View nodeview.View
}

// Of returns what the rules about a pod depend on, without the other pods.
func (n Node) Of(p *pod.Pod) admission.In {
	in := admission.In{
		Pod: p.Pod, Node: n.View.Facts, Supplied: n.Sources.Supplies, RuntimeClass: n.Objects.RuntimeClass,
		Config: n.settings(p), Now: time.Now(), PluginsBy: n.pluginsBy(p.Seen),
	}
	in.Node.Labels = n.View.Labels()
	seen := n.View.Node()
	if seen != nil {
		in.Config.Taints, in.Offered = seen.Spec.Taints, seen.Status.Allocatable
	}
	if p.Source == pod.SourceAPI {
		in.Config.NodeUnknown, in.Config.NodeOld = seen == nil, n.View.Cluster.Object().AsOf().Before(p.Seen)
	}
	in.Devices = n.Ledger.Node().Devices
	in.Given, _ = n.Ledger.Get(p.UID)
	in.Allot = func(beside []types.UID) (resource.Allocation, error) { return n.Ledger.Allot(p.Pod, beside) }
	return in
}

// settings returns the features of this node and what it allows. Without a cluster its taints come from the
// configuration.
func (n Node) settings(p *pod.Pod) admission.Config {
	c := admission.Config{
		UnsafeSysctls: n.Config.Pods.AllowedUnsafeSysctls, AppArmor: appArmor(),
		SupplementalGroupsPolicy: n.Engine.Features.GetSupplementalGroupsPolicy(),
		Declared:                 nodeobject.Declared(n.Config.Server.HTTPS.IsValid()),
		Handlers:                 n.Engine.Handlers(),
		Standalone:               n.View.Cluster.Object() == nil, Taints: n.Config.Node.Taints,
	}
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err == nil {
		c.NoSELinux = n.Engine.NoSELinux
	}
	if userns.Wanted(p.Pod) {
		if err := n.Engine.CheckUserns(p.Pod); err != nil {
			c.NoUserNamespaces = err.Error()
		}
	}
	return c
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
