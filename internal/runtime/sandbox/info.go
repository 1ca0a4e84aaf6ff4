package sandbox

import (
	"encoding/json"
	"os"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/safepath"
)

// info returns the verbose status of a sandbox, with the names that containerd's own controller gives to its parts.
func (b *box) info() (map[string]string, error) {
	info := struct {
		Pid         int                          `json:"pid"`
		Status      string                       `json:"processStatus"`
		NetNSClosed bool                         `json:"netNamespaceClosed"`
		RuntimeType string                       `json:"runtimeType"`
		Config      *runtimeapi.PodSandboxConfig `json:"config,omitempty"`
		RuntimeSpec *specs.Spec                  `json:"runtimeSpec"`
	}{Status: "deleted", RuntimeType: runtimeType, Config: b.config, RuntimeSpec: b.spec()}
	if b.running() {
		info.Pid, info.Status = b.holder.PID, "running"
	}
	if b.NetworkPath != "" {
		_, err := os.Lstat(b.NetworkPath)
		info.NetNSClosed = err != nil && safepath.IgnoreMissing(err) == nil
	}
	text, err := json.Marshal(info)
	if err != nil {
		return nil, err
	}
	return map[string]string{"info": string(text)}, nil
}

// spec describes the namespaces of a sandbox as the specification of a pause container would. The CRI plugin stores it,
// and shows it to NRI plugins. Of a sandbox of an earlier agent only the network is known here.
func (b *box) spec() *specs.Spec {
	var all []specs.LinuxNamespace
	if b.NetworkPath != "" {
		all = append(all, specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: b.NetworkPath})
	}
	if b.config != nil {
		has := namespacesOf(b.config)
		for _, n := range []struct {
			is   bool
			kind specs.LinuxNamespaceType
		}{
			{has.PID, specs.PIDNamespace}, {has.IPC, specs.IPCNamespace}, {has.UTS, specs.UTSNamespace},
			{has.User, specs.UserNamespace},
		} {
			if n.is {
				all = append(all, specs.LinuxNamespace{Type: n.kind})
			}
		}
	}
	return &specs.Spec{Version: specs.Version, Linux: &specs.Linux{Namespaces: all}}
}
