package translate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"strings"

	"github.com/moby/moby/api/types/container"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker/dockerlog"
)

// Facts are the properties of the Engine and of the machine that requests depend on.
type Facts struct {
	// Systemd means that cgroup parents are slices.
	Systemd bool
	// AppArmor means that the Engine confines containers with AppArmor.
	AppArmor bool
	// IPv6 means that the kernel has IPv6.
	IPv6 bool
	// OOMFloor is the lowest oom_score_adj that containers can have. It is -1000 with CAP_SYS_RESOURCE.
	OOMFloor int
	// Handlers are the names of the Engine's runtimes.
	Handlers map[string]bool
	// CDI, RecursiveReadOnly and ImageMounts are features that older Engines lack.
	CDI, RecursiveReadOnly, ImageMounts bool
}

const (
	// host is the mode of a namespace that containers share with the machine.
	host = "host"
	// sandboxOOMScore is the oom_score_adj of pause containers. It is the kubelet's value.
	sandboxOOMScore = -998
	// sandboxShares is the weight of pause containers: the least that the kernel accepts.
	sandboxShares = 2
	// shmSize is the size of the shared memory of a pod in bytes.
	shmSize = 64 << 20
)

func unsupported(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, "Docker cannot "+format, args...)
}

// hash identifies a request. A container with the hash of a request was made for this request.
func hash(m proto.Message, more string) string {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil { // an invalid UTF-8 string, which gRPC does not let through
		return ""
	}
	sum := sha256.Sum256(append(text, more...))
	return hex.EncodeToString(sum[:8])
}

// cgroupParent converts the parent of a pod's cgroups. With systemd, Docker wants the name of the slice alone.
func (f Facts) cgroupParent(parent string) string {
	if f.Systemd && parent != "" {
		return path.Base(parent)
	}
	return parent
}

// oomScore raises an oom_score_adj to the lowest possible value.
func (f Facts) oomScore(score int64) int { return max(int(score), f.OOMFloor) }

// handler converts the name of a runtime handler.
func (f Facts) handler(name string) (string, error) {
	switch {
	case name == "" || name == "docker":
		return "", nil
	case !f.Handlers[name]:
		return "", status.Errorf(codes.InvalidArgument,
			"Docker has no runtime %q; next: add it to \"runtimes\" in /etc/docker/daemon.json", name)
	}
	return name, nil
}

// logConfig bounds the log that Docker keeps. Package dockerlog copies it to the log of the CRI.
func logConfig() container.LogConfig {
	return container.LogConfig{Type: dockerlog.Driver, Config: dockerlog.Options()}
}

// checkUsers returns an error for a pod with a user namespace of its own.
func checkUsers(o *runtimeapi.NamespaceOption) error {
	if u := o.GetUsernsOptions(); u != nil && u.GetMode() != runtimeapi.NamespaceMode_NODE {
		return unsupported("give a pod a user namespace of its own: " +
			"the Engine has one for all containers (userns-remap)")
	}
	return nil
}

// user converts the user and the group of a process.
func user(id, group *runtimeapi.Int64Value, name string) (string, error) {
	text := name
	if id != nil {
		text = fmt.Sprint(id.GetValue())
	}
	if group == nil {
		return text, nil
	}
	if text == "" {
		return "", status.Error(codes.InvalidArgument, "run_as_group is set without run_as_user and run_as_username")
	}
	return fmt.Sprintf("%s:%d", text, group.GetValue()), nil
}

func groups(ids []int64) (all []string) {
	for _, id := range ids {
		all = append(all, fmt.Sprint(id))
	}
	return all
}

// policy returns an error for the policy Strict: Docker cannot leave out the groups that the image gives to its user.
func policy(p runtimeapi.SupplementalGroupsPolicy) error {
	if p == runtimeapi.SupplementalGroupsPolicy_Strict {
		return unsupported("leave out the groups that the image gives to its user (supplementalGroupsPolicy: Strict)")
	}
	return nil
}

// signalPrefix is the beginning of the CRI's names of signals.
const signalPrefix = "SIGNAL_"

// stopSignal converts a signal of the CRI; "" is the image's.
func stopSignal(s runtimeapi.Signal) string {
	if s == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		return ""
	}
	return strings.NewReplacer(signalPrefix, "", "PLUS", "+", "MINUS", "-").Replace(s.String())
}

// Signal converts a signal of Docker; the default is SIGTERM.
func Signal(name string) runtimeapi.Signal {
	if name == "" {
		return runtimeapi.Signal_SIGNAL_SIGTERM
	}
	name = "SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG")
	name = signalPrefix + strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(name)
	return runtimeapi.Signal(runtimeapi.Signal_value[name])
}
