// Package briefspec makes containerd's events about containers cheap.
//
// With each event about a container, the CRI plugin collects the statuses of all containers of the pod. For the user in
// a status it reads and decodes the whole specification of the container. When the 500 containers of a pod end, it does
// so 500,000 times, which took more than half of the agent's CPU time and delayed other pods. Where the
// plugin needs only the user, this package gives it specifications that have nothing else. They are read once.
package briefspec
