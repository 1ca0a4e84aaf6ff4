package endpoint

import "fmt"

// Facts are the inputs of the choice.
type Facts struct {
	// Configured is containerRuntimeEndpoint: unix:///path, docker:// with a path or without, Embedded, or empty.
	Configured string
	// Joined means that the node is in a cluster.
	Joined bool
	// Used means that the embedded runtime has run on this root directory.
	Used bool
	// Default is the kubelet's endpoint when its configuration names none. Trouble says why no runtime answers there.
	// It is nil if one does.
	Default string
	Trouble error
	// Pods means that the root directory has pods.
	Pods bool
}

// Choice is the chosen runtime, and the reason for the choice.
type Choice struct {
	// Endpoint is unix:///path, docker:// with a path or without, or empty for the embedded runtime.
	Endpoint string
	Reason   string
}

// decide chooses the runtime. It returns an error if there are pods but their runtime is unknown: only the user knows
// it.
func decide(f Facts) (Choice, error) {
	switch {
	case f.Configured == Embedded:
		return Choice{Reason: "containerRuntimeEndpoint says so"}, nil
	case f.Configured != "":
		return Choice{f.Configured, "containerRuntimeEndpoint says so"}, nil
	case !f.Joined:
		return Choice{Reason: "containerRuntimeEndpoint is not set"}, nil
	case f.Used:
		return Choice{
			Reason: "containerRuntimeEndpoint is not set, and this node has used the embedded runtime before"}, nil
	case f.Trouble == nil:
		return Choice{f.Default,
			"containerRuntimeEndpoint is not set, and a runtime answers where a kubelet looks for it by default"}, nil
	case f.Pods:
		return Choice{},
			fmt.Errorf(
				"containerRuntimeEndpoint is not set, there are pods of a kubelet, and their runtime does not "+
					"answer at %s: "+
					"start it, or write its address as containerRuntimeEndpoint into the file of --config; "+
					"containerRuntimeEndpoint: %s starts the pods anew in the runtime that the agent carries: %w",
				f.Default, Embedded, f.Trouble)
	}
	return Choice{
			Reason: fmt.Sprintf(
				"containerRuntimeEndpoint is not set, the node has no pods yet, and no runtime answers at %s",
				f.Default)},
		nil
}
