// Package join makes an agent a node of a cluster. It connects the parts that talk to the API server to each other and
// to the agent's own parts.
//
// It owns the connection and the parts that use it. A nil *Cluster is a standalone agent: every method then answers
// that there is no cluster. The parts decide and act by themselves. This package only connects them, and starts them in
// order:
//
//	client certificate --> API clients --> pods, objects, tokens --> sources, steps
//	saved pods ------------^ (while the API server does not answer)
//	status --> report, mirror pods;  recorder --> events;  conditions --> Node, lease
package join
