package admission

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// Confines asks only whether the node can start the containers of a pod with the rights that the pod asks for. The
// agent asks it before each start of a container, because the machine or the runtime may have changed since admission.
// A user namespace belongs to the sandbox, which keeps it.
func Confines(in In) Answer {
	for _, check := range []func(In) Answer{
		checkAppArmor, checkSELinux, checkGroupsPolicy, checkPrivileged, checkProcMount,
	} {
		if a := check(in); a.Verdict != Admitted {
			return a
		}
	}
	return Answer{}
}

func checkAppArmor(in In) Answer {
	if in.Config.AppArmor {
		return Answer{}
	}
	for _, c := range pod.Containers(in.Pod) {
		if appArmor(in.Pod, c) {
			return in.lack(AppArmor,
				"Cannot enforce AppArmor: AppArmor is not enabled on the host (container %q asks for a profile)",
				c.Name)
		}
	}
	return Answer{}
}

// appArmor reports whether a container requests an AppArmor profile: in its security context, in the annotation of
// older manifests, or in the pod's security context.
func appArmor(p *corev1.Pod, c pod.Container) bool {
	if s := c.SecurityContext; s != nil && s.AppArmorProfile != nil {
		return s.AppArmorProfile.Type != corev1.AppArmorProfileTypeUnconfined
	}
	if value := p.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]; value != "" {
		return value != corev1.DeprecatedAppArmorBetaProfileNameUnconfined
	}
	s := p.Spec.SecurityContext
	return s != nil && s.AppArmorProfile != nil && s.AppArmorProfile.Type != corev1.AppArmorProfileTypeUnconfined
}

func checkSELinux(in In) Answer {
	if in.Config.NoSELinux == "" {
		return Answer{}
	}
	asks := in.Pod.Spec.SecurityContext != nil && in.Pod.Spec.SecurityContext.SELinuxOptions != nil
	for _, c := range pod.Containers(in.Pod) {
		asks = asks || c.SecurityContext != nil && c.SecurityContext.SELinuxOptions != nil
	}
	if !asks {
		return Answer{}
	}
	return block(SELinuxNotSupported, "cannot set the pod's SELinux labels (seLinuxOptions): %s", in.Config.NoSELinux)
}

func checkGroupsPolicy(in In) Answer {
	s := in.Pod.Spec.SecurityContext
	if s == nil || s.SupplementalGroupsPolicy == nil ||
		*s.SupplementalGroupsPolicy != corev1.SupplementalGroupsPolicyStrict || in.Config.SupplementalGroupsPolicy {
		return Answer{}
	}
	return in.lack(SupplementalGroupsPolicyNotSupported, "SupplementalGroupsPolicy=%s is not supported in this node",
		corev1.SupplementalGroupsPolicyStrict)
}

func checkUserNamespaces(in In) Answer {
	if in.Config.NoUserNamespaces == "" || in.Pod.Spec.HostUsers == nil || *in.Pod.Spec.HostUsers {
		return Answer{}
	}
	return block(UserNamespacesNotSupported, "cannot give the pod its own user namespace (hostUsers: false): %s",
		in.Config.NoUserNamespaces)
}

func checkPrivileged(in In) Answer {
	if in.Config.NoPrivileges == "" || !pod.Privileged(in.Pod) {
		return Answer{}
	}
	return block(PrivilegedNotSupported, "cannot start privileged containers: %s", in.Config.NoPrivileges)
}

func checkProcMount(in In) Answer {
	if in.Config.NoProc == "" || in.Pod.Spec.HostUsers == nil || *in.Pod.Spec.HostUsers {
		return Answer{}
	}
	return block(ProcMountNotSupported, "cannot mount /proc in the pod's own user namespace (hostUsers: false): %s",
		in.Config.NoProc)
}

// lack answers that the node cannot fulfil a request of the pod. A pod of the cluster is rejected, as by a kubelet, so
// that its controller creates another one, perhaps for another node. A pod of a manifest has no other node and is
// blocked.
func (in In) lack(reason, format string, args ...any) Answer {
	if in.Config.Standalone || ofManifest(in.Pod) {
		return block(reason, format, args...)
	}
	return reject(reason, format, args...)
}
