package agent

import (
	"os"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/cluster/nodeobject"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/admission"
	"github.com/berth-run/berth/internal/pod/steps/userns"
)

// pluginPatience is how long a device plugin may take to come back after the
// agent began or a pod appeared: as long as a kubelet keeps the devices of a
// plugin that is gone.
const pluginPatience = 5 * time.Minute

// admissionInput is what the rules go by, without the other pods.
func (a *Agent) admissionInput(p *pod.Pod) admission.In {
	c := admission.Config{
		UnsafeSysctls: a.config.Pods.AllowedUnsafeSysctls, AppArmor: appArmor(),
		SupplementalGroupsPolicy: a.engine.Features.GetSupplementalGroupsPolicy(),
		Declared:                 nodeobject.Declared(a.config.Server.HTTPS.IsValid()),
	}
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err == nil {
		c.NoSELinux = a.engine.NoSELinux
	}
	if userns.Wanted(p.Pod) {
		if err := a.engine.CheckUserns(p.Pod); err != nil {
			c.NoUserNamespaces = err.Error()
		}
	}
	c.Handlers = a.engine.Handlers()
	since := p.Seen
	if since.Before(a.began) {
		since = a.began
	}
	in := admission.In{
		Pod: p.Pod, Node: a.facts, Supplied: a.sources.Supplies, RuntimeClass: a.objects.RuntimeClass, Config: c,
		Now: time.Now(), PluginsBy: since.Add(pluginPatience),
	}
	member{a}.asNode(p, &in)
	return allotted(a.steps.allocations, in)
}

// appArmor says that the kernel enforces it.
func appArmor() bool {
	text, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && strings.HasPrefix(string(text), "Y")
}
