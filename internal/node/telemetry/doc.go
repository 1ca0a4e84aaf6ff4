// Package telemetry provides the series of /metrics about the node as a whole, under the kubelet's names, so that
// existing dashboards and alerts continue to work. Pods counts pods, Starts measures pod starts, Certificates shows how
// long certificates are valid, Client measures requests to the API server, and Agent describes the agent itself. Other
// series belong to the packages that they are about. docs/metrics.md lists all series, and those of the kubelet that
// are missing.
//
// Values are read from tables on each scrape or counted when something happens; nothing runs in between. The package
// owns only the state of Starts about starting pods.
package telemetry
