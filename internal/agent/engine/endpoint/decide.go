package endpoint

import "fmt"

// Facts are what the choice follows from.
type Facts struct {
	// Configured is containerRuntimeEndpoint: unix:///path, Embedded, or empty.
	Configured string
	// Joined says that the node is one of a cluster.
	Joined bool
	// Used says that the embedded runtime has run on this root directory.
	Used bool
	// Default is the endpoint that a kubelet has when it is told none. Trouble is
	// why nothing answers there; nil: a runtime does.
	Default string
	Trouble error
	// Pods says that the root directory has pods.
	Pods bool
}

// Choice is a runtime, and why it is that.
type Choice struct {
	// Endpoint is unix:///path; empty: the embedded runtime.
	Endpoint string
	Reason   string
}

// decide chooses. The error says that there are pods which only the user can say
// the runtime of.
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
