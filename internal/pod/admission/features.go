package admission

import (
	"strings"

	releases "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
)

// PodFeatureUnsupported is the reason for a pod that needs a feature which the node does not declare.
const PodFeatureUnsupported = "PodFeatureUnsupported"

// checkFeatures compares the node features that a pod needs with those that the Node object declares (KEP-5328). The
// scheduler does the same; this rule catches pods that did not pass through it.
func checkFeatures(in In) Answer {
	features := nodedeclaredfeatures.DefaultFramework
	// The Kubernetes release of this node. A feature that every node of this release has needs no declaration.
	release := releases.MajorMinor(1, 36)
	needs, err := features.InferForPodScheduling(&nodedeclaredfeatures.PodInfo{Spec: &in.Pod.Spec,
		Status: &in.Pod.Status}, release)
	if err != nil {
		return reject(PodFeatureUnsupported, "Failed to infer pod's feature requirements: %v", err)
	}
	match, err := features.MatchNodeFeatureSet(needs, features.TryMap(in.Config.Declared))
	if err != nil {
		return reject(PodFeatureUnsupported, "Failed to match pod's feature requirements against the node: %v", err)
	}
	if !match.IsMatch {
		return reject(PodFeatureUnsupported, "Pod requires node features that are not available: %s",
			strings.Join(match.UnsatisfiedRequirements, ", "))
	}
	return Answer{}
}
