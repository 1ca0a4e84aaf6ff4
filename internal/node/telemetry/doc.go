// Package telemetry makes the series of /metrics that tell of the node as a whole,
// under the kubelet's names, so that its dashboards and alerts go on working:
// how many pods there are (Pods), what starting one takes (Starts), how long
// certificates last (Certificates), what is said to the API server (Client), and
// what runs here (Agent). Series of one part of the agent are made by that part.
// docs/metrics.md lists all of them, and those of the kubelet that there are not.
//
// Numbers are read from tables when somebody scrapes, or counted where something
// happens anyway: nothing runs in between. The package owns what Starts remembers
// of pods that are coming up; everything else belongs to whom it is read from.
package telemetry
