// Package join makes an agent a node of a cluster: it wires the parts that speak
// to an API server to each other and to the agent's own.
//
// It owns the connection and the parts made of it; a nil *Cluster is a standalone
// agent, of which every method says that there is no cluster. The parts decide and
// act for themselves; what is here says who hears from whom, and in which order
// they begin:
//
//	client certificate --> API clients --> pods, objects, tokens --> sources, steps
//	records of before ----^ (while the API server does not answer)
//	board --> statuses, mirror pods;  recorder --> events;  conditions --> Node, lease
package join
