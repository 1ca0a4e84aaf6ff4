// Package userns gives each pod that asks for a user namespace of its own
// (hostUsers: false, KEP-127) a range of the host's user and group ids that no
// other pod has.
//
// It owns pods/<uid>/userns below the agent's root, one file for each such pod,
// in the kubelet's format. There is no other record: a range is taken as long as
// the file is there, over restarts of the agent, and free again when the pod's
// directory goes. The sandbox step asks for ranges; the runtime maps them, also
// the mounts.
package userns
