// Package userns gives each pod with its own user namespace (hostUsers: false, KEP-127) a range of the host's user and
// group ids that no other pod has.
//
// It owns pods/<uid>/userns below the agent's root, one file for each such pod, in the kubelet's format. There is no
// other record: a range is in use while its file exists, also across restarts of the agent, and free again when the
// pod's directory is deleted. The sandbox step asks for ranges; the runtime maps the ids, also in mounts.
package userns
