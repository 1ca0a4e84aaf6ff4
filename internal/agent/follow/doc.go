// Package follow has the loops of an agent that pass a change of one part on to other parts. It owns nothing. The agent
// runs the loops, and each returns when its context ends.
//
//	Objects     objects that pods name     --> pods that wait for them, volumes that show them
//	Addresses   addresses of the machine   --> the Node object, the statuses of pods
//	Overlaps    networks of the machine    --> events, a condition of the node
package follow
