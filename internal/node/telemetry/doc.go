// Package telemetry provides the series of /metrics about the node as a whole, under the kubelet's names, so that
// existing dashboards and alerts continue to work. Pods counts pods, and Starts measures pod starts. Certificates shows
// how long certificates are valid. Client measures requests to the API server, and Agent describes the agent itself.
// Every other series belongs to the package that it describes. docs/metrics.md lists all series, and the kubelet's
// series that are missing here.
//
// Values are read from tables on each scrape or counted when something happens; nothing runs in between. The package
// owns only the state of Starts about starting pods.
package telemetry
