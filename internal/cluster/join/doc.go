// Package join makes an agent a node of a cluster. It connects the parts that talk to the API server to each other and
// to the agent's own parts.
//
// Connect returns a Membership: the one of a cluster, or the one of a standalone agent, whose parts do nothing. A
// membership has two halves. Access is what the agent's steps need, so it is made before them. Reports need the steps,
// so they are made after them. Neither half waits for something that is missing. The parts decide and act by
// themselves. This package only connects them, and starts them in order:
//
//	client certificate --> API clients --> pods, objects, tokens --> sources, steps
//	saved pods ------------^ (while the API server does not answer)
//	status --> report, mirror pods;  recorder --> events;  conditions --> Node, lease
package join
