package admission

import (
	"strings"

	"github.com/berth-run/berth/internal/base/reason"
)

// MetricReason returns the label that counts a rejection. As in the kubelet, all extended resources count under one
// label, because users choose their names.
func MetricReason(why string) string {
	switch why {
	case PodOSSelectorNodeLabelDoesNotMatch, PodOSNotSupported, UnsupportedField, PodFeatureUnsupported,
		SysctlForbidden, RuntimeClass, PodLevelResourcesNotSupported, AppArmor,
		SupplementalGroupsPolicyNotSupported, reason.NodeShutdown, reason.Evicted,
		VolumeAttachmentLimitExceeded, NodeName, NodeAffinity, NodePorts, TaintToleration,
		UnexpectedAdmissionError, TopologyAffinityError, SMTAlignmentError, EmptyPodSharedPool,
		"OutOfcpu", "OutOfmemory", "OutOfephemeral-storage", "OutOfpods":
		return why
	}
	if strings.HasPrefix(why, "OutOf") {
		return "OutOfExtendedResources"
	}
	return "Other"
}
