// Package logs answers requests for container logs, for the local API and for the node's HTTPS server. It keeps
// no state: the log files belong to the runtime.
package logs
