package admission

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/berth-run/berth/internal/model/pod"
)

// Reasons of a rejection, as the kubelet spells them. The reason of a resource is OutOf with the name of the resource.
const (
	PodOSSelectorNodeLabelDoesNotMatch   = "PodOSSelectorNodeLabelDoesNotMatch"
	PodOSNotSupported                    = "PodOSNotSupported"
	UnsupportedField                     = "UnsupportedField" // Berth's own
	SysctlForbidden                      = "SysctlForbidden"
	PodLevelResourcesNotSupported        = "PodLevelResourcesNotSupported"
	AppArmor                             = "AppArmor"
	SupplementalGroupsPolicyNotSupported = "SupplementalGroupsPolicyNotSupported"
	NodeName                             = "NodeName"
	NodeAffinity                         = "NodeAffinity"
	NodePorts                            = "NodePorts"
	TaintToleration                      = "TaintToleration"
	// UnexpectedAdmissionError is the reason of a failed allocation if the allocators name no other reason.
	UnexpectedAdmissionError = "UnexpectedAdmissionError"
	TopologyAffinityError    = "TopologyAffinityError"
	SMTAlignmentError        = "SMTAlignmentError"
	EmptyPodSharedPool       = "EmptyPodSharedPoolError"
	// VolumeAttachmentLimitExceeded is reported by the CSI driver of a volume, after admission.
	VolumeAttachmentLimitExceeded = "VolumeAttachmentLimitExceeded"
	// SELinuxNotSupported is Berth's own: the kubelet does not check this.
	SELinuxNotSupported = "SELinuxNotSupported"
	// UserNamespacesNotSupported is Berth's own: the kubelet admits the pod and
	// fails to create its sandbox.
	UserNamespacesNotSupported = "UserNamespacesNotSupported"
	// PrivilegedNotSupported is Berth's own: the kubelet starts the containers with the capabilities that are left.
	PrivilegedNotSupported = "PrivilegedNotSupported"
	// ProcMountNotSupported is Berth's own: the kubelet admits the pod, and each start of its containers fails.
	ProcMountNotSupported = "ProcMountNotSupported"
	// SameName is Berth's own: the kubelet waits for the earlier pod too, but reports no reason.
	SameName = "SameName"
	// NodePressure is Berth's own: pods of a standalone node wait for the end of the pressure.
	NodePressure = "NodePressure"
	// ManifestObject is Berth's own: the kubelet refuses the manifest.
	ManifestObject = "ManifestObject"
)

func checkOS(in In) Answer {
	if name, ok := in.Pod.Labels[corev1.LabelOSStable]; ok && name != runtime.GOOS {
		return reject(PodOSSelectorNodeLabelDoesNotMatch,
			"Failed to admit pod as the `kubernetes.io/os` label doesn't match node label")
	}
	if in.Pod.Spec.OS != nil && string(in.Pod.Spec.OS.Name) != runtime.GOOS {
		return reject(PodOSNotSupported, "Failed to admit pod as the OS field doesn't match node OS")
	}
	return Answer{}
}

func checkPodLevel(in In) Answer {
	if in.Config.NoPodLevel && resourcehelper.IsPodLevelResourcesSet(in.Pod) {
		return reject(PodLevelResourcesNotSupported, "PodLevelResources feature gate is disabled")
	}
	return Answer{}
}

func checkNodeName(in In) Answer {
	if name := in.Pod.Spec.NodeName; name != "" && name != in.Node.Name {
		return reject(NodeName,
			"Predicate NodeName failed: node(s) didn't match the requested node name (%s is not %s)", in.Node.Name,
			name)
	}
	return Answer{}
}

func checkNodeAffinity(in In) Answer {
	if in.Config.NodeUnknown {
		return Answer{}
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: in.Node.Name, Labels: in.Node.Labels}}
	matches, err := nodeaffinity.GetRequiredNodeAffinity(in.Pod).Match(n)
	if err != nil {
		return reject(NodeAffinity, "Predicate NodeAffinity failed: the pod's node affinity cannot be read: %v", err)
	}
	if !matches && in.Config.NodeOld {
		return Answer{Verdict: NotYet, Reason: NodeAffinity,
			Message: "waiting for the API server to confirm the labels of the node: those known are older than the " +
				"pod, which does not match them"}
	}
	if !matches {
		return reject(NodeAffinity, "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector")
	}
	return Answer{}
}

// checkName lets a pod wait while another pod of its name is there. Otherwise their containers, logs and status could
// be mistaken for each other's.
func checkName(in In) Answer {
	var same []PodInfo
	for o := range in.others() {
		if o.Pod.Namespace == in.Pod.Namespace && o.Pod.Name == in.Pod.Name {
			same = append(same, o)
		}
	}
	if len(same) == 0 {
		return Answer{}
	}
	return notYet(SameName, same, "%s has the same name", same[0].Pod.UID)
}

// notYet answers that the pod waits for the holders to end.
func notYet(reason string, holders []PodInfo, format string, args ...any) Answer {
	names, until := make([]string, len(holders)), time.Time{}
	known := true
	for i, h := range holders {
		names[i] = pod.FullName(h.Pod)
		known = known && !h.EndsBy.IsZero()
		if h.EndsBy.After(until) {
			until = h.EndsBy
		}
	}
	if !known {
		until = time.Time{}
	}
	noun := "pod "
	if len(names) > 1 {
		noun = "pods "
	}
	return Answer{
		Verdict: NotYet, Reason: reason, Until: until,
		Message: "waiting for " + noun + strings.Join(names, ", ") + " to end: " + fmt.Sprintf(format, args...),
	}
}
