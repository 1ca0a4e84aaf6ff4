package admission

import (
	"strings"

	releases "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
)

// PodFeatureUnsupported is why a pod is not taken that needs what the node does not declare.
const PodFeatureUnsupported = "PodFeatureUnsupported"

// checkFeatures holds what a pod needs of a node against what the Node object declares
// (KEP-5328): a pod that comes past the scheduler is not run without it.
func checkFeatures(in In) Answer {
	features := nodedeclaredfeatures.DefaultFramework
	release := releases.MajorMinor(1,
		36) // what this node is to a cluster; of a feature that all nodes have by some release it is not asked
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
