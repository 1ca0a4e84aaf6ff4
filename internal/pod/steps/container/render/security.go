package render

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

func securityContext(in Input) (*runtimeapi.LinuxContainerSecurityContext, error) {
	podSC, sc := contexts(in)
	if err := checkNonRoot(in, podSC, sc); err != nil {
		return nil, err
	}
	seccomp, err := seccompProfile(in, cmp.Or(sc.SeccompProfile, podSC.SeccompProfile))
	if err != nil {
		return nil, err
	}
	out := &runtimeapi.LinuxContainerSecurityContext{
		Capabilities:       capabilities(sc.Capabilities),
		Privileged:         isTrue(sc.Privileged),
		NamespaceOptions:   namespaces(in),
		SelinuxOptions:     selinux(cmp.Or(sc.SELinuxOptions, podSC.SELinuxOptions)),
		RunAsGroup:         int64Value(cmp.Or(sc.RunAsGroup, podSC.RunAsGroup)),
		ReadonlyRootfs:     isTrue(sc.ReadOnlyRootFilesystem),
		SupplementalGroups: groups(podSC, volumeGroups(in)),
		NoNewPrivs:         sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
		Seccomp:            seccomp,
	}
	out.RunAsUser, out.RunAsUsername = user(in, podSC, sc)
	if sc.ProcMount == nil || *sc.ProcMount != corev1.UnmaskedProcMount {
		out.MaskedPaths = append(maskedPaths(), in.Node.MaskedPaths...)
		out.ReadonlyPaths = readonlyPaths()
	}
	if p := podSC.SupplementalGroupsPolicy; p != nil {
		v, ok := runtimeapi.SupplementalGroupsPolicy_value[string(*p)]
		if !ok {
			return nil, fmt.Errorf("unsupported supplementalGroupsPolicy: %s", *p)
		}
		out.SupplementalGroupsPolicy = runtimeapi.SupplementalGroupsPolicy(v)
	}
	return out, appArmor(in, podSC, sc, out)
}

// contexts returns the security contexts of pod and container, empty where there is none.
func contexts(in Input) (*corev1.PodSecurityContext, *corev1.SecurityContext) {
	return cmp.Or(in.Pod.Spec.SecurityContext, &corev1.PodSecurityContext{}),
		cmp.Or(in.Container.SecurityContext, &corev1.SecurityContext{})
}

// user returns the pod's choice, else the image's, else root.
func user(in Input, podSC *corev1.PodSecurityContext, sc *corev1.SecurityContext) (*runtimeapi.Int64Value, string) {
	switch uid := cmp.Or(sc.RunAsUser, podSC.RunAsUser); {
	case uid != nil:
		return int64Value(uid), ""
	case in.Image.GetUid() != nil:
		return in.Image.Uid, ""
	case in.Image.GetUsername() != "":
		return nil, in.Image.Username
	}
	return &runtimeapi.Int64Value{}, ""
}

func checkNonRoot(in Input, podSC *corev1.PodSecurityContext, sc *corev1.SecurityContext) error {
	if !isTrue(cmp.Or(sc.RunAsNonRoot, podSC.RunAsNonRoot)) {
		return nil
	}
	where := fmt.Sprintf("(pod: %q, container: %s)",
		fmt.Sprintf("%s_%s(%s)", in.Pod.Name, in.Pod.Namespace, in.Pod.UID), in.Container.Name)
	chosen := cmp.Or(sc.RunAsUser, podSC.RunAsUser)
	uid, name := user(in, podSC, sc)
	switch {
	case chosen != nil && *chosen == 0:
		return fmt.Errorf("container's runAsUser breaks non-root policy %s", where)
	case chosen != nil:
		return nil
	case uid == nil:
		return fmt.Errorf(
			"container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root %s", name,
			where)
	case uid.Value == 0:
		return fmt.Errorf("container has runAsNonRoot and image will run as root %s", where)
	}
	if errs := validation.IsValidUserID(uid.Value); len(errs) > 0 {
		return fmt.Errorf("container has runAsNonRoot and image has an invalid user id (%d): %s %s", uid.Value,
			strings.Join(errs, "; "), where)
	}
	return nil
}

func groups(podSC *corev1.PodSecurityContext, ofVolumes []int64) []int64 {
	var list []int64
	if podSC.FSGroup != nil {
		list = append(list, *podSC.FSGroup)
	}
	return slices.Concat(list, podSC.SupplementalGroups, ofVolumes)
}

func namespaces(in Input) *runtimeapi.NamespaceOption {
	o := &runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_POD, Ipc: runtimeapi.NamespaceMode_POD,
		Pid:           runtimeapi.NamespaceMode_CONTAINER,
		UsernsOptions: in.Userns,
	}
	if pod.HostNetwork(in.Pod) {
		o.Network = runtimeapi.NamespaceMode_NODE
	}
	if in.Pod.Spec.HostIPC {
		o.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case in.Pod.Spec.HostPID:
		o.Pid = runtimeapi.NamespaceMode_NODE
	case isTrue(in.Pod.Spec.ShareProcessNamespace):
		o.Pid = runtimeapi.NamespaceMode_POD
	case in.TargetID != "":
		o.Pid, o.TargetId = runtimeapi.NamespaceMode_TARGET, in.TargetID
	}
	return o
}

func capabilities(c *corev1.Capabilities) *runtimeapi.Capability {
	if c == nil {
		return nil
	}
	out := &runtimeapi.Capability{}
	for _, name := range c.Add {
		out.AddCapabilities = append(out.AddCapabilities, string(name))
	}
	for _, name := range c.Drop {
		out.DropCapabilities = append(out.DropCapabilities, string(name))
	}
	return out
}

func selinux(o *corev1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

func seccompProfile(in Input, p *corev1.SeccompProfile) (*runtimeapi.SecurityProfile, error) {
	switch {
	case p == nil && in.Node.SeccompDefault, p != nil && p.Type == corev1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case p == nil, p.Type == corev1.SeccompProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	case p.Type != corev1.SeccompProfileTypeLocalhost:
		return nil, fmt.Errorf("unknown seccomp profile type %q", p.Type)
	case p.LocalhostProfile == nil || *p.LocalhostProfile == "":
		return nil, fmt.Errorf("localhostProfile must be set if seccompProfile type is Localhost")
	case !filepath.IsLocal(*p.LocalhostProfile):
		return nil, fmt.Errorf("localhostProfile %q must be a path below %s", *p.LocalhostProfile, in.Node.SeccompRoot)
	}
	return &runtimeapi.SecurityProfile{
		ProfileType:  runtimeapi.SecurityProfile_Localhost,
		LocalhostRef: filepath.Join(in.Node.SeccompRoot, *p.LocalhostProfile),
	}, nil
}

// appArmor sets the profile in both of the CRI's fields. The container's field wins, then the annotation (KEP-24, for
// older manifests), then the pod's field.
func appArmor(in Input, podSC *corev1.PodSecurityContext, sc *corev1.SecurityContext,
	out *runtimeapi.LinuxContainerSecurityContext) error {
	p := cmp.Or(sc.AppArmorProfile, annotatedAppArmor(in), podSC.AppArmorProfile)
	if p == nil {
		return nil
	}
	out.Apparmor = &runtimeapi.SecurityProfile{}
	var older string
	switch p.Type {
	case corev1.AppArmorProfileTypeRuntimeDefault:
		out.Apparmor.ProfileType = runtimeapi.SecurityProfile_RuntimeDefault
		older = corev1.DeprecatedAppArmorBetaProfileRuntimeDefault
	case corev1.AppArmorProfileTypeUnconfined:
		out.Apparmor.ProfileType = runtimeapi.SecurityProfile_Unconfined
		older = corev1.DeprecatedAppArmorBetaProfileNameUnconfined
	case corev1.AppArmorProfileTypeLocalhost:
		if p.LocalhostProfile == nil || *p.LocalhostProfile == "" {
			return fmt.Errorf("missing localhost apparmor profile name")
		}
		out.Apparmor.ProfileType = runtimeapi.SecurityProfile_Localhost
		out.Apparmor.LocalhostRef = *p.LocalhostProfile
		older = corev1.DeprecatedAppArmorBetaProfileNamePrefix + *p.LocalhostProfile
	default:
		return fmt.Errorf("unknown apparmor profile type: %q", p.Type)
	}
	out.ApparmorProfile = older //nolint:staticcheck // the only field that runtimes before CRI 0.20 read
	return nil
}

func annotatedAppArmor(in Input) *corev1.AppArmorProfile {
	value := in.Pod.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+in.Container.Name]
	switch value {
	case corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	}
	if name, ok := strings.CutPrefix(value, corev1.DeprecatedAppArmorBetaProfileNamePrefix); ok {
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	return nil
}

// maskedPaths and readonlyPaths are the ones that container engines commonly use for procMount Default.
func maskedPaths() []string {
	return []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
		"/sys/devices/virtual/powercap",
	}
}

func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

func isTrue(b *bool) bool { return b != nil && *b }

func int64Value(v *int64) *runtimeapi.Int64Value {
	if v == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *v}
}
