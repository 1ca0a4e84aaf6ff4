package admission

import "strings"

// MetricReason is the reason under which a rejection is counted. As in the
// kubelet those of extended resources, whose names users choose, are one.
func MetricReason(reason string) string {
	switch reason {
	case PodOSSelectorNodeLabelDoesNotMatch, PodOSNotSupported, UnsupportedField, SysctlForbidden, RuntimeClass,
		AppArmor, SupplementalGroupsPolicyNotSupported, NodeShutdown, VolumeAttachmentLimitExceeded,
		NodeName, NodeAffinity, NodePorts, TaintToleration, UnexpectedAdmissionError, TopologyAffinityError, SMTAlignmentError, EmptyPodSharedPool,
		"OutOfcpu", "OutOfmemory", "OutOfephemeral-storage", "OutOfpods":
		return reason
	}
	if strings.HasPrefix(reason, "OutOf") {
		return "OutOfExtendedResources"
	}
	return "Other"
}
